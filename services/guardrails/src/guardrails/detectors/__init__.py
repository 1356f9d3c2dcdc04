"""The built-in detectors that need a model, a process or a large library, one module each.

A detector depends only on texts and its parameters. Code that maps findings to actions belongs in
`detection.moderation`.
"""
