"""Documents in an index: upsert, update, deletion, reading and listing.

`search` finds passages. `indexes` creates and deletes indexes.
"""
