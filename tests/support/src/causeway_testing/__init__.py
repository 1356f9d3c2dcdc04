"""Fakes of the ports and servers for tests and benchmarks.

A fake passes the contract tests of the adapters that it replaces. No service and no library imports this package,
and no image contains it. Servers are real processes or sockets on free ports; fakes of a service's ports are in the
subpackage of that service.
"""
