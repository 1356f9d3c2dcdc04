"""Quotas: what a tenant, an API key and a user may use, together over all replicas of the gateway (docs/quotas.md)."""
