"""The client of servers with the OpenAI API: requests, streams, failures.

Code that selects a server belongs in `generator.routing`.
"""
