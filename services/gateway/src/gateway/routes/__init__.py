"""HTTP: what comes in at which path. Knows the dialects only by their port."""
