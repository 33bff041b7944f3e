"""Shows, compares, tags and deletes published versions, from the storage alone.

`place` is a dataset in a storage. `history` lists versions, `contents` shows one, `difference`
compares two, `usage` counts bytes, and `trace` follows one sample.

`tagging` moves tags, and `leasing` shows and changes leases. `clean` deletes units that nothing
needs, by `holdings` (the listing), `due` (the choice), `sweep` (the deletion) and `unread`
(mirrored objects).
"""
