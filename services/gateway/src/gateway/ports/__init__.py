"""The interfaces of the services that the gateway calls, and the types of these calls.

Implementations do not belong here. The adapters are in `clients`, the fakes in `causeway_testing.gateway`. Adapters
and fakes pass the same contract tests.
"""
