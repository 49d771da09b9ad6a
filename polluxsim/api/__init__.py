"""The Python API: simulate, compare and keep runs from a script or a notebook.

`polluxsim` itself offers these names, and loads what they need when they are first used.
"""

from __future__ import annotations

from polluxsim.api.parts import Choice, cluster, config_dirs, policy, profiles, settings, workload
from polluxsim.api.results import Comparison, Result, compare, read
from polluxsim.api.simulating import simulate, start
from polluxsim.api.sweeps import Sweep, read_sweep, sweep

__all__ = [
    "Choice",
    "Comparison",
    "Result",
    "Sweep",
    "cluster",
    "compare",
    "config_dirs",
    "policy",
    "profiles",
    "read",
    "read_sweep",
    "settings",
    "simulate",
    "start",
    "sweep",
    "workload",
]
