"""Which deployment answers a request: choice, concurrency limits, retries, circuit breakers, metrics and spans.

Clients of model servers belong in `generator.openai` and `generator.triton`, reading the configuration in
`generator.configuration`.
"""
