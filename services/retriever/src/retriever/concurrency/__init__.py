"""Locks, scheduling, shielding and retries on the event loop.

Nothing here knows what the work is for. Threads and processes belong to the modules that start them.
"""
