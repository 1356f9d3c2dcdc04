"""Rerankers on servers, over HTTP and on Triton.

The decision when to call them, and what to do when they fail, belongs to `rerankers`.
"""
