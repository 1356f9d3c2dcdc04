"""The route table: it has one entry with properties for each path and method.

`routes` and `dialects` contain the handlers of the routes. `server` contains the layers that read the table.
"""
