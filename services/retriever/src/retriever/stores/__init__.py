"""Adapters of the store port, a package for each engine, and what the engines share.

Access rules, fusion and the upsert protocol are the same for all stores and belong above the port.
"""
