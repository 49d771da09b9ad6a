"""The interactive report of finished runs: one HTML file that needs nothing else."""

from polluxsim.analysis.report.page import report

__all__ = ["report"]
