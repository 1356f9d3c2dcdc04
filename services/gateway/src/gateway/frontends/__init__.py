"""Front end profiles and the files that define them: defaults, choices, limits, and detector policies.

`server.frontend_selection` finds the profile of a request. `answering` applies it to the answer.
"""
