"""The configured models: the models file, the schema of this file, and the adapters and routes for its entries.

Code that reads the configuration or reacts to its changes belongs here. The handling of one request belongs in
`generator.routing`.
"""
