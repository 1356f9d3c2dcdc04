"""Messages of ``retriever/v1`` to domain types and back.

Only this package and `servicer` import the generated messages; no rule of the service belongs here.
"""
