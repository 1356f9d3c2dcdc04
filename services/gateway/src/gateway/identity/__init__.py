"""Who sends a request and what this caller may do: credentials, API keys, OpenID Connect tokens, roles of routes.

The middleware that applies these rules is `server.authentication`; the libraries for tokens are large, and only
`oidc` loads them.
"""
