"""The present state of a cluster: its nodes, and the jobs that run or wait, as the tools of a site print them."""
