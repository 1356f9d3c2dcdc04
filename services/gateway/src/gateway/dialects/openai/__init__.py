"""OpenAI's chat completions and embeddings, with retrieval if a request names an index.

Extensions of other products to this format belong to the packages of those products.
"""
