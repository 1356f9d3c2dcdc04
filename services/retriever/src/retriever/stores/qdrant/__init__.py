"""A Qdrant server, or a cluster, that several retrievers share: collections, aliases and leases.

What the embedded engine needs as well belongs to `stores.payload`.
"""
