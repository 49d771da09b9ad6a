"""Policies that reserve GPUs for jobs that wait, and backfill other jobs."""
