"""Fetches documents from URLs: `addresses` decides which addresses are public, `fetcher` downloads allowed URLs.

Further processing of a download belongs in `ingest.documents`.
"""
