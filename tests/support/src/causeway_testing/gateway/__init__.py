"""Fakes of the gateway's ports: they follow a script, work in memory, and record their calls.

Tests of dialects and routes build the application with these fakes instead of the other services.
"""
