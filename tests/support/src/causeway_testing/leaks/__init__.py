"""Requests, answers and a gateway for the tests that search answers for secrets (`tests/leaks`)."""
