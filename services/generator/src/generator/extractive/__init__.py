"""The extractive model, which needs no weights: it answers with the best sentences of the sources.

Code that ranks, cites and limits its answers belongs here. Requests and chunks of the OpenAI API belong in
`generator.openai_emulation`.
"""
