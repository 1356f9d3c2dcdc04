"""The choice of the deployment for a request: concurrency limits, retries, circuit breakers, metrics and spans.

Clients of model servers belong in `generator.openai` and `generator.triton`, the reading of the configuration in
`generator.configuration`.
"""
