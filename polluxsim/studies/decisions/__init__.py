"""Compare the decisions of a policy with the recorded starts of a cluster, second by second."""
