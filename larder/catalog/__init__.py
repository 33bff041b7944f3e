"""Shows, compares, tags and deletes published versions, from the storage alone.

`stored_dataset` is a dataset in a storage. `history` lists versions, `show` describes one,
`version_difference` compares two, `usage` counts bytes, and `trace` follows one sample.

`tagging` moves tags, and `leasing` shows and changes leases. `cleaning` deletes units that nothing
needs, by `holdings` (the listing), `due` (the choice) and `sweep` (the deletion).
"""
