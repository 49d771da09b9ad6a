"""Workloads: who submits what when, read and checked, or sampled from a trace."""
