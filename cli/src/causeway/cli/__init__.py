"""The causeway command: runs the platform on one machine and talks to it over its public HTTP interface."""
