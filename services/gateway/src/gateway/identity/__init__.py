"""Who asks, and what they may do: from a request's headers to its `Caller`, and from its path to a role.

`caller` says what the layers inside find of who asks, and where. `access` is the one table of which route takes
which role. `layers` puts both around the application; `key_ring` knows the API keys, `tokens` the OpenID Connect
tokens, whose libraries are large and therefore loaded by `oidc` alone, where tokens are taken.
"""
