"""The interfaces that the logic calls: vector stores, term encoders and rerankers.

`stores` implements vector stores, `clients` implements rerankers. This package imports neither.
"""
