"""The adapters of the ports. They call retriever, generator and guardrails over gRPC, and use NATS for stored data.

Decisions about requests do not belong here. The fakes of the same ports are in `causeway_testing.gateway`.
"""
