"""The configured models: the models file, its schema, and the adapters and routes that are made of it.

Everything that reads configuration or reacts to its changes belongs here. What one request does belongs in
`generator.routing`.
"""
