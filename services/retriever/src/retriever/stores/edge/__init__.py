"""Qdrant Edge: the vector store inside the process, with its files, compaction and build process.

`stores.payload` has the code that it shares with the Qdrant server.
"""
