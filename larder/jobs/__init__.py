"""Steps that run in batches, in this process or as tasks.

`step_runner` runs the batches of a step in threads. The `crew` does units of them, and pools do
pieces of a batch; both have `processes`. `manifests` go from step to step by reference, and
`results` report a step.
"""
