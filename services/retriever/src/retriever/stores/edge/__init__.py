"""Qdrant Edge: the vector store inside the process, with its files, compaction and build process.

What a Qdrant server needs as well belongs to `stores.payload`.
"""
