"""Scheduling policies: each looks at a view of the cluster and says who gets which GPUs."""
