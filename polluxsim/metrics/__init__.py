"""Metrics: functions from a result to numbers."""
