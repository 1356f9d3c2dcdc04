"""RAGEngine's API for documents, listings and retrieval.

`dialects.openai` implements RAGEngine's chat completions, which are OpenAI's chat completions with an index.
"""
