"""Samples as records of ``tf.train.Example``.

`features` chooses the features of a sample, `example` makes their bytes, and `format` frames,
writes and reads records.
"""
