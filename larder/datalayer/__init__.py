"""The data layer: what a function returns, cached once under an id and a version.

`function` tells whether it changed, `elements` which fields its elements have, and `place` where
the cache is. `stored` opens the cache, or has it built; `files` fetches and reads its files;
`schedule` divides it among the ranks as YogaDL does. `decorators` is the way in, `trial` what
Determined says; `tf` needs TensorFlow.
"""
