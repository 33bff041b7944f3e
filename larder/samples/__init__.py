"""From objects to samples in the order in which they are written.

`order` does it: `parts` says which sample each object belongs to, `grouping` joins them, and each
gets its split (`splits`, `strata`) and label (`labels`). `indexed` are samples as a version's index
has them; `decoders` and `images` say what parts decode to.
"""
