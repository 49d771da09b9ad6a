"""Tasks for programs that write policies: worlds with bounds, a score, feedback, and a random search."""
