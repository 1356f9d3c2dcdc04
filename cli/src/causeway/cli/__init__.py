"""The causeway command: runs the platform on one machine and uses its public HTTP interface."""
