"""The workloads of tools/call_counts.py, one module for each process."""
