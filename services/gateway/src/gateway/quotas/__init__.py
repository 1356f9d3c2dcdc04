"""Quotas of tenants, API keys and users over all replicas of the gateway (docs/quotas.md): limits, meters, ledger.

`server.quota_enforcement` is the middleware that enforces them. `clients.quota_share` exchanges the usage between
the replicas.
"""
