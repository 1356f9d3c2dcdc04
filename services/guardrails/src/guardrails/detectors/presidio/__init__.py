"""The detector ``pii``: names of people and places, by Presidio with a spaCy model, in child processes.

The child's program belongs here. What starts and bounds child processes is `guardrails.detectors.child_processes`.
"""
