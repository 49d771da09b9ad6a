"""Sweeps: many runs, each done once, that go on where they were, and one table of their results."""

from polluxsim.sweeps.complete import run_sweep

__all__ = ["run_sweep"]
