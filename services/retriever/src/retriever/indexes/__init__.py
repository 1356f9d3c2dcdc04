"""Indexes as a whole: creation, deletion, replacement, rebuilds and snapshots.

Changes and listings of the documents in an index belong to `documents`.
"""
