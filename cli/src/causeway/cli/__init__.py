"""The causeway command."""
