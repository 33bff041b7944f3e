"""The main job, from settings to a published version and its configs, in the order of its modules.

::

    prepare: settings -> planning -> build: `larder.segments` -> publish -> configs -> run_report

What a version keeps of the previous one is found out by `larder.growth`; `larder.segments` makes
what is new. Each step takes and returns small values; manifests are passed by reference.
"""
