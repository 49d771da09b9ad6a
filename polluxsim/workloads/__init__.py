"""Workloads: jobs with their submission times, read from files, drawn, or sampled from logs."""
