"""The guardrails service."""
