"""The HTTP endpoints: they map paths to dialects, ports or the pipeline, and format the answers.

Rules for every path belong to `server`; reading and writing of wire formats belongs to `dialects`.
"""
