"""The HTTP server and the ASGI middleware around the routes: authentication, admission, quotas, recording, errors.

What a single path answers belongs to `routes`; rules that need no request belong to `identity`, `quotas` and
`frontends`.
"""
