"""The protocols that describe what the gateway needs of other services, and the types of their calls.

Implementations do not belong here: the adapters are in `clients`, the fakes in `causeway_testing.gateway`, and both
pass the same contract tests.
"""
