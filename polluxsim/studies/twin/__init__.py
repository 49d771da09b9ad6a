"""A live twin of a cluster with Slurm: futures from its present state, under Slurm's rules."""
