"""Public wire formats: a dialect parses a request into a `Turn` and renders the events of its answer.

Each dialect has its own package. All dialects share the modules of this package. A dialect that extends another
one imports it: the orchestrator, RAGEngine and the Responses API extend OpenAI's chat completions, and the
Responses API and MCP use RAGEngine's filters on metadata. This package contains no code for HTTP or connections.
"""
