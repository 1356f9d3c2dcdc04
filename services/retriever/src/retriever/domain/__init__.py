"""The types that the retriever works with, and the rules that hold for them alone.

Nothing here knows a wire format, a store or an event loop.
"""
