"""Objects inside of objects: members of archives, rows of tables, entries of annotation files."""
