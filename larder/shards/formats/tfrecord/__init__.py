"""Samples as records of ``tf.train.Example``.

`features` says which features a sample has, `example` what their bytes are, `format` how records
are framed, written and read.
"""
