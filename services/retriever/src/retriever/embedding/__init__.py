"""Vectors of queries and of callers' texts, computed by the models of the library `embedding`.

Documents arrive with their vectors. A rebuild of an index (`indexes.rebuild`) computes new ones.
"""
