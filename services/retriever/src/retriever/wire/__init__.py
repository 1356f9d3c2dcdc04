"""Conversion between messages of ``retriever/v1`` and domain types.

Only this package and the servicers import the generated messages. The package has no application logic.
"""
