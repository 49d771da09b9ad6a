"""The interactive report of finished runs: one HTML file that needs nothing else."""

from polluxsim.look.report.page import Subject, report

__all__ = ["Subject", "report"]
