"""The shared library of all Causeway services. It imports no service."""
