"""The retriever's logic on any store, a stand-in for a Qdrant server, and rerankers.

Stores are not faked: the service ships one in memory.
"""
