"""The data card of a version: one HTML page that describes its contents for people.

`card_facts` reads the figures, `pictures` some samples, `card_page` writes HTML, `draw` draws
charts and puts the card into the storage, and `larder prepare` draws it after a run. The
card is derived from the version, and no part of the version.
"""
