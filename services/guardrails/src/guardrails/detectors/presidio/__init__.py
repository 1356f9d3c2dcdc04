"""The detector ``pii``: finds names of people and places with Presidio and a spaCy model, in child processes.

The program of the child process belongs here. `guardrails.detectors.child_processes` starts and limits child
processes.
"""
