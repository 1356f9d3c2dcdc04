"""A Qdrant server, or a cluster, that several retrievers share: collections, aliases and leases.

`stores.payload` has the code that it shares with the embedded engine.
"""
