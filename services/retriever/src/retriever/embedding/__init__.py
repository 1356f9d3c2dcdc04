"""Vectors of queries, and of texts that callers send, by the models of the library `embedding`.

Vectors of documents arrive with the documents, or come from a rebuild of their index (`indexes.rebuild`).
"""
