"""Quotas: what tenants, API keys and users may use, over all replicas of the gateway (docs/quotas.md)."""
