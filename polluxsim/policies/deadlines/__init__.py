"""Elastic policies for jobs with deadlines."""
