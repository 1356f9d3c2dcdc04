"""The interfaces that all detectors implement, and the detectors that only search for patterns, one module each.

A detector knows only texts and its parameters. The actions for its findings belong in `detection.moderation`.
"""
