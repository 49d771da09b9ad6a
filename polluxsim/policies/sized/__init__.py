"""Policies for whole jobs that divide CPUs and memory, leases of GPUs, or rounds of a window."""
