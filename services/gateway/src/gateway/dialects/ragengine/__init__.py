"""RAGEngine's API for documents, lists and retrieval: requests in, JSON out.

Its chat completions are OpenAI's with an index, so they belong to `dialects.openai`.
"""
