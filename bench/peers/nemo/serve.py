"""NeMo Guardrails' own command with its logs off: runs in its environment, where nothing of ours is."""

import logging

from nemoguardrails.cli import app  # type: ignore[import-not-found]  # of another environment

logging.disable(logging.WARNING)
app()
