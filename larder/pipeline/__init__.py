"""The main job, from settings to a published version and its configs, in the order of its modules.

::

    preparing: settings -> planning -> planned_build: build: `larder.segments` -> publish_step
        -> configs -> run_report

`larder.growth` finds the segments that a version keeps, and `larder.segments` makes the new
segment. Each step takes and returns small values; manifests are passed by reference.
"""
