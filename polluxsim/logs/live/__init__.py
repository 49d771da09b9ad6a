"""The present state of a running Slurm, as its own commands print it."""
