"""The client of servers that speak the OpenAI API: requests, streams, failures.

Choosing among servers belongs in `generator.routing`.
"""
