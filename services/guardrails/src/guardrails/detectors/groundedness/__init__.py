"""The detector ``groundedness``: finds sentences of an answer that the passages do not support.

Analysis and comparison of sentences belong here. Code that other detectors could use belongs in
`guardrails.detectors`.
"""
