"""The Model Context Protocol: agents search, read and ask through the same pipeline and ports as chats.

The package `mcp` implements the protocol in its two generations; this package defines what Causeway offers with it.
"""
