"""The ports' adapters: gRPC to retriever, generator and guardrails, NATS to ingest."""
