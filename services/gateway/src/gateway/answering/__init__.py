"""Turn a `Turn` into the events of an answer: detection, retrieval, budget, prompt, generation.

Wire formats (`dialects`), transports (`routes`, `clients`) and front end profiles (`frontends`) do not belong here.
"""
