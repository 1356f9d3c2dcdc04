"""Stored responses whose events are written to a log before they are sent, and the readers of these logs."""
