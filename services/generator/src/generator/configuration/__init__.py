"""The configured models: the models file, its schema, and the adapters and routes made from it.

Code that reads the configuration or reacts to its changes belongs here. The handling of one request belongs in
`generator.routing`.
"""
