"""Public wire formats: a dialect parses a request into a `Turn` and renders the events of its answer.

Each dialect has its own package. Only the orchestrator, RAGEngine and the Responses API import another dialect:
they extend OpenAI's chat completions. The dialects share the modules beside the packages. Transports do not
belong here.
"""
