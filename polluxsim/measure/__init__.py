"""Measure step times and gradient noise in a training loop, and write files for `polluxsim profile fit`."""

from __future__ import annotations

from polluxsim.measure.recorder import NoiseScaleEstimate, Recorder

__all__ = ["NoiseScaleEstimate", "Recorder"]
