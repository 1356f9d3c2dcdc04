"""Quotas of tenants, API keys and users over all replicas of the gateway (docs/quotas.md): limits, meters, ledger.

The middleware that enforces them is `server.quota_enforcement`, and how replicas exchange usage is
`clients.quota_share`.
"""
