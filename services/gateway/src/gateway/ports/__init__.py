"""The protocols of the services that the gateway calls, and the types of these calls.

Implementations do not belong here: the adapters are in `clients`, the fakes in `causeway_testing.gateway`. Both
pass the same contract tests.
"""
