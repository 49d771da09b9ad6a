"""polluxsim: a trace-driven discrete-event simulator of deep-learning cluster scheduling."""

from __future__ import annotations

__version__ = "0.1.0"
