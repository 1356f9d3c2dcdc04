"""The command of NeMo Guardrails without logs. It runs in the environment of NeMo Guardrails."""

import logging

from nemoguardrails.cli import app  # type: ignore[import-not-found]  # of another environment

logging.disable(logging.WARNING)
app()
