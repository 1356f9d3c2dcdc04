"""Front end profiles and the files that define them: defaults, choices, limits, and detector policies.

How a request finds its profile belongs to `server.frontend_selection`; what a profile changes in an answer
belongs to `answering`.
"""
