"""Searches whole and growing texts for regular expressions, in linear time.

The engine, the matcher and the pattern detector belong here. Detectors with an id and parameters belong in
`detection.detectors`.
"""
