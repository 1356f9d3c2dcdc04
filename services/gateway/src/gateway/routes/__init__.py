"""HTTP endpoints: which path calls which dialect, port or pipeline, and what its answer looks like.

What applies to every path belongs to `server`, and how a wire format is read and written to `dialects`.
"""
