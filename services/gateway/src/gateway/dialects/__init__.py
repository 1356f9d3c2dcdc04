"""Public wire formats: a dialect parses a request into a `Turn` and renders the events of its answer.

Each dialect has its own package. Only the orchestrator and RAGEngine import another one: they extend OpenAI's chat
completions. The modules beside the packages are shared. Transports do not belong here.
"""
