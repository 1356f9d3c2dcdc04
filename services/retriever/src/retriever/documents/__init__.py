"""Documents in an index: upsert, update, deletion, reading and listing.

Searching for passages belongs to `search`; which indexes exist belongs to `indexes`.
"""
