"""The detector ``groundedness``: sentences of an answer that the passages do not support.

What a sentence says, and how two sentences are compared, belongs here. What any detector could use belongs in
`guardrails.detectors`.
"""
