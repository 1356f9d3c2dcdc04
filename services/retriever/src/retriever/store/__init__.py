"""Where chunks and records are kept: the port, the embedded engine's adapter, and the fake."""
