"""From objects to samples, in the order in which samples are written.

Start with `sample_order`: `parts` assigns objects to samples, `grouping` joins the parts, and each
sample gets its split (`splits`, `strata`) and label (`labels`). `indexed` describes samples in a
version's index; `decoders` and `image_parts` turn parts into arrays.
"""
