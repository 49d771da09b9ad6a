"""Pollux: the cluster-wide objective, the searches for a good allocation, and the policy that uses them."""
