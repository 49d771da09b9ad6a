"""Measure a training loop of one's own: step times and gradient noise, as the files that `polluxsim fit` takes."""

from __future__ import annotations

from polluxsim.measure.recorder import NoiseScale, Recorder

__all__ = ["NoiseScale", "Recorder"]
