"""Detectors: the port, the pattern detectors, and the catalogue that names them."""
