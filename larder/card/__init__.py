"""The data card of a version: one HTML page that says what is in it, for people.

``facts`` reads what there is to say, ``pictures`` some samples, ``charts`` draws, ``page`` writes
HTML, ``draw`` puts it into the storage, and ``prepare`` does that after a run. It is derived from
the version, and no part of it.
"""
