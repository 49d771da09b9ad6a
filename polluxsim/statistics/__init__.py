"""Statistics of finished runs: groups, data frames, series, means and changes with intervals, comparisons, ranks."""
