"""The properties of routes for the layers around them: a table has one entry for each path and method.

The answers of routes belong to `routes` and `dialects`; the layers that read the table belong to `server`.
"""
