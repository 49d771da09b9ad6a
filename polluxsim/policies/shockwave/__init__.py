"""Shockwave: a market over the rounds of a window, by what jobs are expected to do."""
