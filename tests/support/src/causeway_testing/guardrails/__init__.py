"""Detectors that find scripted words, and a detector server over real HTTP. Detectors with rules of their own
belong to the service.
"""
