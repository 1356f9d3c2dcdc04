"""The built-in detectors, one module each, and the interfaces that every detector implements.

A detector knows texts and its parameters. What follows from its findings belongs in `guardrails.moderation`.
"""
