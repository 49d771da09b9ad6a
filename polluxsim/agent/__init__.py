"""Agents: each measures the speed of its job and chooses the batch size."""
