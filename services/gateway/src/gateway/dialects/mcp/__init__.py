"""The Model Context Protocol: what agents search, read and ask, over the pipeline and the ports of the chats.

The package `mcp` speaks the protocol in its two generations; here is what Causeway offers with it.
"""
