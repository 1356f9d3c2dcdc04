"""Files on disk that do not depend on the vector store: durable writes and the format of snapshots.

How a store lays out its own files belongs to its package in `stores`.
"""
