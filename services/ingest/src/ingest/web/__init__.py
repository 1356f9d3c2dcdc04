"""Documents from URLs: `addresses` says which addresses are public, `fetcher` downloads what is allowed.

What becomes of a download belongs to `ingest.documents`.
"""
