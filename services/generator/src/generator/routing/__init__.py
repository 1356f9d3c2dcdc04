"""The choice of the deployment for a request: concurrency limits, retries, circuit breakers, metrics and spans.

Clients of model servers belong in `generator.openai` and `generator.triton`. Code that reads the configuration
belongs in `generator.configuration`.
"""
