"""The rerankers that are configured (``rerankers.yaml``), their time limits, and their step of a search.

The clients of reranker servers are in `clients`.
"""
