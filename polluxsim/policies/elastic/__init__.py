"""Policies that choose the number of GPUs of jobs, and wrappers that choose the number of nodes."""
