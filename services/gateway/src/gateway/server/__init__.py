"""The HTTP server and the ASGI middleware around the routes: authentication, admission, quotas, recording, errors.

`routes` has the code of single paths. `identity`, `quotas` and `frontends` have the rules that do not depend on
HTTP.
"""
