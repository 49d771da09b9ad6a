"""Logs of clusters: read in the formats of schedulers, checked, and stored as one table of jobs."""
