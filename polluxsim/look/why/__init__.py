"""Explain in sentences why a job waited, ran or lost GPUs, from its allocations and the policy's reasons."""
