"""Scheduling policies. Each receives a view of the cluster and decides which job gets which GPUs."""
