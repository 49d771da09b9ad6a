"""Look at finished runs: tables, figures, timelines, reports and reasons, from their files alone."""
