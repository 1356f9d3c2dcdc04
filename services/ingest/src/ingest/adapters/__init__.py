"""The ports on real ground: NATS JetStream and the retriever. Proto messages live here and no farther in."""
