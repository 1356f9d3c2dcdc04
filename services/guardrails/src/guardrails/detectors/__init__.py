"""The built-in detectors that need a model, a process or a large library, one module each.

A detector knows only texts and its parameters. The actions for its findings belong in `detection.moderation`.
"""
