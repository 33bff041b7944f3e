"""Images on their way into shards: checked, and resized and encoded again if that is asked for.

`check` is what a build calls; `transform` makes the bytes, in the processes of `pool`.
"""
