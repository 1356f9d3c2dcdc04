"""The HTTP endpoints. They map paths to dialects, ports or the pipeline, and format the responses.

Rules for every path belong to `server`; reading and writing of wire formats belongs to `dialects`.
"""
