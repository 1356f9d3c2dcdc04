"""The adapters of the ports: gRPC to retriever, generator and guardrails, NATS to ingest and to what it stores.

Decisions about requests do not belong here; the fakes of the same ports are in `causeway_testing.gateway`.
"""
