"""The engine: a discrete-event simulation of jobs on a cluster, driven round by round by a policy."""
