"""Which deployment answers: the configured models, choice, limits, retries, circuits."""
