"""The search: candidates, fusion, and the steps that work on the passages that were found.

`retrieval` runs the steps. Rerankers are in `rerankers`; embedding the query is in `embedding`.
"""
