"""Locks, scheduling, shielding and retries on the event loop.

These modules do not depend on the domain. Threads and processes belong to the modules that start them.
"""
