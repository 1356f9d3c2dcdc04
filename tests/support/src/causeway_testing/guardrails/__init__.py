"""Detectors that find scripted words, and a detector server over real HTTP. What judges text by a rule of its own
belongs to the service.
"""
