"""Turns an original, or a batch of texts, into documents of the index: fetch, parse, chunk, embed, store.

This package knows only the ports. NATS, gRPC and file formats do not belong here.
"""
