"""Turns an original, or a batch of texts, into documents of the index: fetch, parse, chunk, embed, store.

This package uses only the ports. Code for NATS, gRPC and file formats belongs elsewhere.
"""
