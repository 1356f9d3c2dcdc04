"""What every Causeway service shares. Imports no service."""
