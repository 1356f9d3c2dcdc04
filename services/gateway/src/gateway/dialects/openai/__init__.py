"""OpenAI's chat completions and embeddings, with retrieval if a request names an index.

The extensions of other products to this format are in the packages of those products.
"""
