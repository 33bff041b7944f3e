"""From objects to samples in the order in which they are written.

`order` does it: `parts` says which sample each object belongs to, `grouping` joins them, `planner`
gives each sample its split (`splits`, `strata`) and label (`labels`, `classes`). `indexed` are
samples as a version's index has them; `decoders` and `images` say what parts decode to.
"""
