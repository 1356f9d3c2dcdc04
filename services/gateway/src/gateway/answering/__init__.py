"""How a `Turn` becomes the events of an answer: detection, retrieval, budget, prompt, generation, hold-back.

Wire formats (`dialects`), transports (`routes`, `clients`) and front end profiles (`frontends`) do not belong here.
"""
