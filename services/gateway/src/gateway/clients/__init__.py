"""The adapters of the ports: gRPC to retriever, generator and guardrails; NATS to ingest and to stored data.

Decisions about requests do not belong here; the fakes of the same ports are in `causeway_testing.gateway`.
"""
