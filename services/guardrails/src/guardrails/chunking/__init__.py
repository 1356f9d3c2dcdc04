"""Cutting a growing text into the windows that a detector judges.

Chunkers and the windows made of their cuts belong here. Calls to chunkers on other servers belong in
`guardrails.remote`.
"""
