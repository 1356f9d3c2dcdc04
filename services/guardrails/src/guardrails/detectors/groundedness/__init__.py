"""The detector ``groundedness``: finds sentences of an answer that the passages do not support.

Code that analyses and compares sentences belongs here. Code for several detectors belongs in
`guardrails.detectors`.
"""
