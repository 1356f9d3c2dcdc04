"""Public wire formats: a dialect parses a request into a `Turn` and renders the events of its answer.

Each dialect has its own package and imports no other one, except that the orchestrator and RAGEngine extend
OpenAI's chat completions; the modules beside the packages hold what dialects share. Transports do not belong here.
"""
