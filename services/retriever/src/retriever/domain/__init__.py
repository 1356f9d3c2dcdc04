"""The domain types of the retriever, and their rules.

This package does not depend on wire formats, stores or an event loop.
"""
