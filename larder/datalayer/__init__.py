"""The data layer: the elements that a function returns, cached once under an id and a version.

Start with `decorators`. `function` detects a changed function, `elements` maps elements to fields,
and `cache_place` locates the cache. `stored` opens or builds the cache; `layer_files` fetches and
opens its files. `element_loader` reads batches of them, and divides the elements among the ranks as
YogaDL does. `tensor_source` needs TensorFlow.
"""
