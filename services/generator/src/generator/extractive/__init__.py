"""The extractive model, which needs no weights: it answers with the best sentences of the sources.

Ranking, citing and cutting of its answers belong here. Requests and chunks of the OpenAI API belong in
`generator.openai_emulation`.
"""
