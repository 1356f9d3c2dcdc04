"""Implementations of `ingest.ports` on NATS JetStream and the retriever's gRPC.

Only this package reads and writes wire messages. Decisions about jobs and documents belong in `ingest.jobs` and
`ingest.documents`.
"""
