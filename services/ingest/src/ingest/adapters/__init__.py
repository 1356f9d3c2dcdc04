"""Implementations of `ingest.ports` on NATS JetStream and the retriever's gRPC.

Messages of the wire are read and written here, and nowhere else in ingest. Decisions about jobs and documents
belong in `ingest.jobs` and `ingest.documents`.
"""
