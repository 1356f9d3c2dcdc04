"""The interfaces that all detectors implement, and the detectors that only search for patterns, one module each.

A detector depends only on texts and its parameters. Code that maps findings to actions belongs in
`detection.moderation`.
"""
