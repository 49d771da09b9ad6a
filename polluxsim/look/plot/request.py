"""Requests for figures, which both the command line and Python make. This module has no slow imports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from polluxsim.common.errors import InvalidConfigError, allowed_among, did_you_mean, short

FIGURE_KINDS = {
    "jct-cdf": "the distribution of the completion times of jobs",
    "jct-by-application": "the completion times of each application",
    "usage": "the GPUs in use and their statistical efficiency over time",
    "queue": "the jobs that wait without a GPU over time",
    "gpu-map": "the job on each GPU over time",
    "failures": "the nodes that are down over time, and the GPU time that outages and failures cost",
    "job": "the GPUs, batch size and efficiency of one job over time",
    "fairness-cdf": "the distribution of the finish-time fairness of jobs",
    "slowdown-by-size": "the slowdown of jobs by the number of GPUs that they ask for",
    "sweep": "a metric against a setting, with 95 % intervals",
    "throughput": "the measured and the fitted throughput of applications",
    "scaling": "the time of a decision against GPUs and jobs",
    "batch-size": "the best batch size against GPUs and training progress",
    "goodput": "the goodput against the batch size, on 1, 4 and 16 GPUs",
    "training": "the statistical efficiency over the training",
}
"""Kinds of figures, with a description of each."""

OF_PROFILES = ("throughput", "batch-size", "goodput", "training")  # kinds that show profiles instead of runs

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "jct-cdf": ("each",),
    "jct-by-application": ("each",),
    "fairness-cdf": ("each",),
    "slowdown-by-size": ("each",),
    "gpu-map": ("each",),
    "failures": ("each",),
    "usage": ("each", "bin"),
    "queue": ("each", "bin"),
    "job": ("job", "profiles"),
    "sweep": ("x", "metric", "by", "baseline"),
    "scaling": (),
    "throughput": ("profiles", "cards", "application"),
    "batch-size": ("profiles", "application"),
    "goodput": ("profiles", "application"),
    "training": ("profiles", "application"),
}
"""Options of each kind, besides the width and the colours for a dark page."""

LISTS = ("job", "by")  # options with several values
ONE_COLUMN = 8.5  # default width of a figure with one panel [cm]
TWO_COLUMNS = 17.0  # default width of a figure with panels side by side [cm]
WIDTHS = (5.0, 60.0)  # smallest and largest width of a legible figure [cm]


@dataclass(frozen=True)
class PlotRequest:
    """A kind of figure with its options. An invalid value raises InvalidConfigError."""

    kind: str  # a key of `FIGURE_KINDS`
    width: float | None = None  # Width in print [cm]. The default depends on the kind.
    dark: bool = False  # whether the figure is for a dark page
    each: bool = False  # Whether each run has a line. By default, the runs of a setting are pooled.
    bin: float = 30.0  # length of the averaging window [min]
    job: Sequence[str] | None = None  # Names of jobs. The default is the job with the most GPU time.
    # Folders of profiles, and of cards to compare them with.
    profiles: Path | None = None
    cards: Path | None = None
    # The setting on the horizontal axis, the metric to draw, and the settings that have a line for each value.
    x: str | None = None
    metric: str = "avg_jct"
    by: Sequence[str] | None = None
    baseline: str | None = None  # setting or run that the bars of `sweep` compare with
    application: Any = None  # application to draw; for `throughput`, a list of applications

    def __post_init__(self) -> None:
        if self.kind not in FIGURE_KINDS:
            raise InvalidConfigError(f"plot {self.kind!r} is unknown, {allowed_among(self.kind, FIGURE_KINDS)}")
        if not (_is_number(self.bin) and self.bin >= 1):
            raise InvalidConfigError(f"--bin is {_shown(self.bin)}, must be a number of minutes of at least 1")
        if self.width is not None and not _is_legible(self.width):
            raise InvalidConfigError(f"--width is {_shown(self.width)}, must be {WIDTHS[0]:g} to {WIDTHS[1]:g} cm")
        if self.kind == "sweep" and self.x is None:
            raise InvalidConfigError("plot sweep: the setting on the horizontal axis is missing; give x")

    @classmethod
    def of(cls, kind: str, options: Mapping[str, Any]) -> PlotRequest:
        """Return the request for a kind of figure with named options, as for `run.plot`.

        Raise InvalidConfigError if the kind, an option or a value is unknown or invalid.
        """
        # A request for `sweep` needs x. This one only checks the kind.
        request = cls(kind, x=options.get("x") or "")
        names = ("width", "dark", *OPTIONS[kind])
        values: dict[str, Any] = {"x": None}
        for option, value in options.items():
            if value is None:
                continue
            name = option
            # In Python, the axes of a sweep are x and y.
            if option == "y":
                name = "metric"
            values[name] = value
            if name not in names:
                meant = did_you_mean(name, names)
                raise InvalidConfigError(
                    f"plot {kind}: there is no option {name}; choose from {', '.join(names)}{meant}"
                )
            if name in LISTS and isinstance(value, str):
                values[name] = [value]
            elif name in ("profiles", "cards"):
                values[name] = Path(value)
        return replace(request, **values)

    @property
    def width_in_cm(self) -> float:
        """Return the width [cm]."""
        if self.width is not None:
            return self.width
        return TWO_COLUMNS if self.kind in (*OF_PROFILES, "scaling") else ONE_COLUMN


def _is_number(value: object) -> bool:
    # True and False are of type int.
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_legible(width: float) -> bool:
    narrowest, widest = WIDTHS
    return _is_number(width) and narrowest <= width <= widest


def _shown(value: object) -> str:
    """Return a value of the user for a message. A value in Python can be of any type."""
    if isinstance(value, int | float):
        return f"{value:g}"
    return short(value)
