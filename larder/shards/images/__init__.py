"""Images on their way into shards: checked, and on request resized and encoded again.

Start with `check`, which builds call; `transform` makes the bytes, in the processes of a pool.
"""
