"""What the layers around the routes know about each route: one entry for each path and method, found by a table.

What a route answers belongs to `routes` and `dialects`; the layers that read the table belong to `server`.
"""
