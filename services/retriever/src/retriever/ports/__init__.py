"""The interfaces that the logic calls: a vector store and a reranker.

Adapters of vector stores are in `stores`, those of rerankers in `clients`; nothing here imports them.
"""
