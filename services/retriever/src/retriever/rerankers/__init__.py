"""The configured rerankers (``rerankers.yaml``), their time limits, and the reranking step of a search.

`clients` has the clients of reranker servers.
"""
