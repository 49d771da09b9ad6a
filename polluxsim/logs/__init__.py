"""Clusters' logs: read in their own formats, checked, and kept as one table of jobs."""
