"""RAGEngine's API for documents, listings and retrieval.

`dialects.openai` implements RAGEngine's chat completions, because these are OpenAI's with an index.
"""
