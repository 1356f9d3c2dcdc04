"""The RAG chat protocol of the Azure samples: one module for each published stage, and the parts that stages share.

OpenAI's chat completions, which the first stages extend, have their own package. This package does not import it.
"""
