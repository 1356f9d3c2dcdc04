"""Answers whose events are kept: written to a log before they are sent, and read from it."""
