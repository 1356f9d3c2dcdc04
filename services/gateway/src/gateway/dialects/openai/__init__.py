"""OpenAI's chat completions and embeddings, with retrieval where a request names an index.

Extensions of other products to this format belong to the packages of those products.
"""
