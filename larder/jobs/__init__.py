"""Steps that run in batches, in this process or as tasks: runner, processes, receipts."""
