"""Files on disk that do not depend on the vector store: durable writes and the format of snapshots.

Each store's package in `stores` defines the layout of its own files.
"""
