"""Authentication and roles of callers: credentials, API keys, OpenID Connect tokens.

`server.authentication` is the middleware that applies these rules. Only `oidc` loads the libraries for tokens,
because they are large.
"""
