"""The work whose calls tools/call_counts.py counts, by process."""
