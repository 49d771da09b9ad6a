"""Hardware of a cluster: nodes, GPU types, CPUs and memory, placements, restart delays, checkpoints."""
