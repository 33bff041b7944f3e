"""What becomes of versions once they are published, from the storage alone.

`place` is a dataset in a storage, `tagging` moves its tags, `leasing` shows and changes leases, and
`clean` deletes what nothing needs, in the steps `holdings` (what there is), `due` (what may go) and
`sweep` (the deletion).
"""
