"""polluxsim: a trace-driven discrete-event simulator of deep-learning cluster scheduling.

>>> import polluxsim
>>> polluxsim.policy("pollux", p=-10)
policy('pollux', p=-10)
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

__version__ = "0.1.0"

# Intel's vector library, if it is installed, gives different last bits on other processors. Numba reads this setting
# when it is first imported, which any module of polluxsim can do.
os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")


def _end_interrupted(*_: object) -> None:
    """End the process of the command `polluxsim`, which Ctrl-C interrupts while it is loaded."""
    os.write(2, b"polluxsim: interrupted, nothing was written\n")
    os._exit(130)


if sys.argv[:1] == ["-m"] and "polluxsim" in sys.orig_argv:  # `python -m polluxsim` has just begun to load
    try:
        import signal

        signal.signal(signal.SIGINT, _end_interrupted)
    except KeyboardInterrupt:
        _end_interrupted()


# The names of the Python API by the modules that have them. Each name is imported at its first use, so the command line
# starts fast. __init__.pyi has the types for editors and checkers.
_ROOMS = {
    "polluxsim.api.parts": ("cluster", "config_dirs", "policy", "profiles", "settings", "workload"),
    "polluxsim.api.results": ("Comparison", "Result", "compare", "read"),
    "polluxsim.api.simulating": ("simulate", "start"),
    "polluxsim.api.sweeps": ("Sweep", "read_sweep", "sweep"),
    "polluxsim.engine.settings": ("EngineSettings",),
    "polluxsim.engine.scenario": ("Scenario",),
    "polluxsim.engine.simulation": ("Simulation",),
    "polluxsim.common.errors": ("PolluxSimError",),
    "polluxsim.metrics.declared": ("Metric",),
    "polluxsim.policies.contract.policy": ("Policy",),
    "polluxsim.policies.contract.view": ("Decision", "Reason", "ReasonKind", "Traits"),
    "polluxsim.hardware.clusters": ("Cluster",),
    "polluxsim.models.batch_size": ("BatchSize",),
    "polluxsim.studies.sizing": ("size", "SizeRequest"),
    "polluxsim.studies.log_calibration": ("calibrate", "CalibrateRequest"),
    "polluxsim.studies.log_replays": ("log_whatif", "LogWhatIfRequest"),
    "polluxsim.studies.judging": ("judge", "JudgeRequest"),
    "polluxsim.studies.arena.contest": ("arena", "ArenaRequest"),
    "polluxsim.workloads.workload": ("Job", "Workload"),
}  # fmt: skip
_HOME = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = ["__version__", *_HOME]  # noqa: PLE0604  (names, all of them)


def __getattr__(name: str) -> object:
    """Import a name of the Python API at its first use. Raise AttributeError for another name."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value  # Python does not call this function again for the name
    return value


def __dir__() -> list[str]:
    """Return the names of the Python API and of this module."""
    return sorted({*globals(), *_HOME})
