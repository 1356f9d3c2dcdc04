"""Fakes of the gateway's ports: scripted, in memory, and keeping what they were asked.

Tests of a dialect or a route build the application on them; what a real service does is tested with that service.
"""
