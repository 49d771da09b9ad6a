"""Experiments of papers: their runs, measures and drawings, and verdicts on published numbers."""
