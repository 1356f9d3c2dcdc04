"""The Model Context Protocol (MCP) for agents. Agents use the same pipeline and ports as chats.

The third-party package `mcp` implements both versions of the protocol. This package defines the tools, resources
and prompts.
"""
