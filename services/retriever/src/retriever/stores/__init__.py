"""Adapters of the store port, one package for each engine, and their shared code.

Access rules, fusion and the upsert protocol are the same for all stores and are above the port.
"""
