"""Clients of reranker servers, over HTTP and on Triton.

`rerankers` decides when to call them and handles their failures.
"""
