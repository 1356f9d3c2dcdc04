"""The RAG chat protocol of the Azure samples.

The protocol has several published versions, which this package calls stages. Each stage has a module, and all
stages share the other modules. OpenAI's chat completions, which the first stages extend, have their own package.
This package does not import it.
"""
