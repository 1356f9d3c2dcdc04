"""Authentication and roles of callers: credentials, API keys, OpenID Connect tokens.

The middleware that applies these rules is `server.authentication`. The libraries for tokens are large; only `oidc`
loads them.
"""
