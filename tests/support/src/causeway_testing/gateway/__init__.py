"""Fakes of the gateway's ports: they are scripted, work in memory, and record their calls.

Tests of a dialect or a route build the application with them. The tests of a service cover the service itself.
"""
