"""The Model Context Protocol for agents, which use the same pipeline and ports as chats.

The package `mcp` implements both generations of the protocol. This package defines the tools, resources and
prompts.
"""
