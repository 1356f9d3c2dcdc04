"""From an original, or a batch of texts, to a document of the index: fetch, parse, chunk, embed, hand over.

This package knows the ports only. NATS, gRPC and the formats of files do not belong here.
"""
