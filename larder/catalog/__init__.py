"""What becomes of versions once they are published, from the storage alone.

`place` is a dataset in a storage. `history` lists versions, `contents` shows one, `difference`
compares two, `usage` counts bytes, and `trace` follows one sample.

`tagging` moves tags, `leasing` shows and changes leases, and `clean` deletes what nothing needs, in
the steps `holdings` (what there is), `due` (what may go), `sweep` (the deletion) and `unread` (of
mirrored objects).
"""
