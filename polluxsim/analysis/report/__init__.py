"""The interactive report of finished runs: one HTML file that needs nothing else."""

from polluxsim.analysis.report.lives import NO_LIVES, Lives, fit, lives_of
from polluxsim.analysis.report.page import Subject, report

__all__ = ["NO_LIVES", "Lives", "Subject", "fit", "lives_of", "report"]
