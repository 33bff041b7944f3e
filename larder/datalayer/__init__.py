"""The data layer: the elements that a function returns, cached once under an id and a version.

Start with `decorators`. `function` detects a changed function, `elements` maps elements to fields,
and `cache_place` locates the cache. `stored` opens or builds the cache, from a `returned_dataset`;
`layer_files` fetches and opens its files. `larder.readers.loader.Loader` reads them: from the
source of `element_loader`, by the schedule of `layer_schedule`, which divides the elements among
the ranks as YogaDL does. `trial` reads Determined's variables; `tensor_source` needs TensorFlow.
"""
