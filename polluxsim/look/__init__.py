"""Look at finished runs: make tables, figures, timelines, reports and explanations from their files alone."""
