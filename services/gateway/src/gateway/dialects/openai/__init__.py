"""OpenAI's completions and embeddings. A completion has retrieval if the request names an index, as in RAGEngine.

The packages `orchestrator` and `responses` extend the chat completions.
"""
