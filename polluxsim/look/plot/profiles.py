"""Figures of profiles: throughput, batch sizes and statistical efficiency (Figures 3, 1 and 2 of the paper).

The width of every figure is in [cm].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from polluxsim.applications.card_profile import CardProfile
from polluxsim.applications.folder import ProfileFolder
from polluxsim.applications.measured import MeasuredProfile
from polluxsim.common.errors import InvalidInputError, allowed_among
from polluxsim.hardware.placements import BatchChoice, packed
from polluxsim.look.colours import DASHES, MARKERS, PALETTE
from polluxsim.look.fitted_speed import FittedSpeed, ThroughputCurve, agent_model, fitted_speed, mean_error
from polluxsim.look.plot.request import PlotRequest
from polluxsim.look.plot.style import TWO_COLUMNS, Drawing, legend, name_lines, new_figure, plain, share_axis, styled
from polluxsim.models.efficiency import efficiency, gain
from polluxsim.models.goodput import Alone
from polluxsim.models.profile import Profile, ProfileRangeError

GPU_TICKS = (1, 4, 16, 64)  # of the axes of GPUs
POWERS_OF_TWO = [2**power for power in range(20)]  # possible ticks of the axes of batch sizes


@styled
def throughput(
    speeds: Sequence[FittedSpeed], names: tuple[str, str] = ("measured", "card"), width: float = TWO_COLUMNS
) -> Drawing:
    """Draw two panels for each application: throughput by GPUs, and by batch size.

    `names` are those of the points and of the lines in the legend.
    """
    pairs = 1  # applications side by side, with two panels each
    if width > 12 and len(speeds) > 1:
        pairs = 2
    rows = -(-len(speeds) // pairs)
    figure = new_figure(width, 0.8 + 3.7 * rows)
    panels = figure.subplots(rows, 2 * pairs, squeeze=False)
    for index, speed in enumerate(speeds):
        row, pair = divmod(index, pairs)
        left = panels[row][2 * pair]
        right = panels[row][2 * pair + 1]
        lines = _panel(left, speed.measured_by_replicas, speed.card_by_replicas)
        _panel(right, speed.measured_by_batch_size, speed.card_by_batch_size)
        left.set_title(f"{speed.title}, mean error {100 * mean_error(speed):.1f} %", loc="left")
        left.set_ylabel("examples/s")
        left.set_xlabel(f"GPUs, {speed.atomic_batch_size} examples each")
        _log_ticks(left, GPU_TICKS)
        right.set_xlabel(f"batch size, {speed.num_replicas} GPUs")
        _log_ticks(right, POWERS_OF_TWO)
    # An odd number of applications leaves the last pair of panels empty.
    for axes in panels.flat[2 * len(speeds) :]:
        axes.set_visible(False)
    legend(figure, dict(zip(lines, names, strict=True)))
    return figure


def _log_ticks(axes: Axes, ticks: Sequence[int]) -> None:
    """Scale the x axis by powers of two, with at most four of these ticks."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    visible = [tick for tick in ticks if low <= tick <= high]
    step = max(-(-len(visible) // 4), 1)  # rounded up, so that at most four ticks remain
    axes.xaxis.set_major_locator(FixedLocator(visible[::step]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")


def _count(value: float, _: object = None) -> str:
    """Return a short number for an axis: 2M, 15k or 300."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 1e4:
        return f"{value / 1e3:.3g}k"
    return f"{value:g}"


def _panel(axes: Axes, measured: ThroughputCurve, fitted: ThroughputCurve):  # type: ignore[no-untyped-def]
    """Draw measured points and a fitted line, and return both."""
    (points,) = axes.plot(measured.x, measured.throughput, "o", color=PALETTE[3], markersize=3)
    (line,) = axes.plot(fitted.x, fitted.throughput, color=PALETTE[1], zorder=1)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(_count)
    return points, line


REPLICAS = (1, 2, 4, 8, 12, 16)  # GPUs of Figure 1
GOODPUT_REPLICAS = (1, 4, 16)  # GPUs of the figure of the goodput
STAGES = {"first half": (0.0, 0.5), "second half": (0.5, 1.0)}  # shares of all epochs between which a stage lies

MOST_SIZES = 6  # largest number of batch sizes in the figure of the training


@styled
def best_batch_sizes(profile: Profile, width: float = TWO_COLUMNS) -> Drawing:
    """Draw throughput by packed GPUs at a small and at a large batch size, and the best batch size by stage."""
    figure, (left, right) = _panels(width, 2)
    lines = _draw_throughputs(left, profile)
    stages = _draw_best_sizes(right, profile)
    for axes in (left, right):
        axes.set_xlabel("GPUs")
        axes.xaxis.set_major_locator(FixedLocator(REPLICAS))
    left.set_title(profile.application.name, loc="left")
    name_lines(left, lines)
    name_lines(right, stages)
    return figure


def _draw_throughputs(axes: Axes, profile: Profile) -> dict[Line2D, str]:
    """Draw throughput by packed GPUs at a small and at a large batch size, and return the name of each line."""
    limits = profile.application
    small = max(profile.batch_sizes[len(profile.batch_sizes) // 2 - 1], limits.init_batch_size)
    lines = {}
    # A profile with few batch sizes has one curve, because its small size is its largest one.
    for style, size in enumerate(dict.fromkeys([small, limits.max_batch_size])):
        points = []
        for count in REPLICAS:
            value = throughput_at(profile, count, size)
            if value is not None:
                points.append((count, value))
        lines[_draw(axes, points, style)] = f"batch size {size}"
    axes.set_ylabel("throughput [examples/s]")
    axes.yaxis.set_major_formatter(_count)
    axes.set_ylim(bottom=0)
    return lines


def _draw_best_sizes(axes: Axes, profile: Profile) -> dict[Line2D, str]:
    """Draw the best batch size by packed GPUs in each stage of the training, and return the name of each line."""
    stages = {}
    for style, (stage, shares) in enumerate(STAGES.items()):
        points = []
        for count in REPLICAS:
            choice = best_choice(profile, count, shares)
            if choice is not None:
                points.append((count, choice.batch_size(count)))
        stages[_draw(axes, points, style)] = f"{stage} of training"
    axes.set_yscale("log", base=2)
    low, high = axes.get_ylim()
    if high < 2 * low:
        axes.set_ylim(low / 2, 2 * high)  # small differences look small
    axes.yaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.yaxis.set_major_formatter(plain)
    axes.set_ylabel("best batch size [examples]")
    axes.margins(y=0.18)  # room for names
    return stages


@styled
def goodputs(profile: Profile, width: float = TWO_COLUMNS) -> Drawing:
    """Draw the goodput against the batch size on several numbers of packed GPUs, in both halves of the training.

    A star marks the batch size with the highest goodput on each number of GPUs.
    """
    figure, panels = _panels(width, len(STAGES))
    panel_lines = []
    for axes, (stage, shares) in zip(panels, STAGES.items(), strict=True):
        lines = {}
        for style, count in enumerate(GOODPUT_REPLICAS):
            points = goodput_points(profile, count, shares)
            if not points:
                continue
            (line,) = axes.plot(*zip(*points, strict=True), color=PALETTE[style], linestyle=DASHES[style])
            best_size, highest = max(points, key=lambda point: point[1])
            axes.plot(best_size, highest, color=PALETTE[style], marker="*", markersize=9)
            lines[line] = "1 GPU" if count == 1 else f"{count} GPUs"
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(plain)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("batch size [examples]")
        axes.set_ylabel("goodput [examples/s]")
        axes.yaxis.set_major_formatter(_count)
        axes.set_title(f"{profile.application.name}, {stage} of training", loc="left")
        panel_lines.append((axes, lines))
    # The goodput falls during the training. One scale for both halves makes the difference visible.
    top = max(axes.get_ylim()[1] for axes in panels)
    for axes, lines in panel_lines:
        axes.set_ylim(0, top)
        name_lines(axes, lines)
    return figure


@styled
def training_curves(profile: Profile, width: float = TWO_COLUMNS) -> Drawing:
    """Draw the statistical efficiency over training for several batch sizes, and the validation metric if measured.

    Cards do not contain the validation metric: its panel is left out.
    """
    limits = profile.application
    sizes = evenly_spaced(profile.batch_sizes)
    epochs = np.arange(limits.num_epochs)
    num_panels = 2 if isinstance(profile, MeasuredProfile) else 1
    figure, panels = _panels(width, num_panels)
    shades = colormaps["cividis"](np.linspace(0, 0.85, len(sizes)))  # the last shades are too faint on white
    lines = {}
    for index, (size, colour) in enumerate(zip(sizes, shades, strict=True)):
        dashes = DASHES[index % len(DASHES)]
        (line,) = panels[-1].plot(epochs + 1, efficiencies(profile, size), color=colour, linestyle=dashes)
        lines[line] = f"{size}"
        if isinstance(profile, MeasuredProfile):
            metric = [row.metric for row in profile.validations[size]]
            panels[0].plot(epochs + 1, metric, color=colour, linestyle=dashes)
            panels[0].set_ylabel("validation metric")
    share_axis(panels[-1], "statistical efficiency")
    for axes in panels:
        axes.set_xlabel("statistical epoch")
    panels[0].set_title(f"{limits.name}, by batch size [examples]", loc="left")
    legend(figure, lines)
    return figure


def evenly_spaced(sizes: Sequence[int]) -> list[int]:
    """Return at most `MOST_SIZES` batch sizes at even distances, including the smallest and the largest."""
    indices = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_SIZES)).round().astype(int)
    return [sizes[index] for index in indices]


def efficiencies(profile: Profile, batch_size: int) -> list[float]:
    """Return the statistical efficiency of a batch size [examples] in every epoch."""
    limits = profile.application
    scale = batch_size / limits.init_batch_size
    values = []
    for epoch in range(limits.num_epochs):
        values.append(efficiency(profile.gradient_statistics(batch_size, epoch), scale))
    return values


def throughput_at(profile: Profile, num_replicas: int, batch_size: int) -> float | None:
    """Return the largest throughput [examples/s] at a batch size of at most `batch_size` [examples].

    None if the profile has no times for this number of packed GPUs, or all its batch sizes there are larger.
    """
    alone = Alone(profile, packed(num_replicas))
    throughputs = []
    try:
        for choice in alone.choices:
            size = choice.batch_size(num_replicas)
            if size <= batch_size:
                throughputs.append(size / alone.step_time(choice))
    except ProfileRangeError:
        return None
    return max(throughputs, default=None)


def best_choice(profile: Profile, num_replicas: int, shares: tuple[float, float]) -> BatchChoice | None:
    """Return the choice that takes the least time on packed GPUs between two shares of all epochs.

    None if no time is known.
    """
    alone = Alone(profile, packed(num_replicas))
    epochs = _epochs(profile, shares)
    try:
        return min(alone.choices, key=lambda choice: _time(alone, choice, epochs), default=None)
    except ProfileRangeError:
        return None


def goodput_points(profile: Profile, num_replicas: int, shares: tuple[float, float]) -> list[tuple[int, float]]:
    """Return batch sizes [examples], in order, and their goodput [examples/s] between two shares of all epochs.

    The list is empty if the profile has no times for this number of packed GPUs.
    """
    alone = Alone(profile, packed(num_replicas))
    epochs = _epochs(profile, shares)
    best = dict[int, float]()  # by batch size
    with suppress(ProfileRangeError):
        for choice in alone.choices:
            goodput = profile.application.init_batch_size * len(epochs) / _time(alone, choice, epochs)
            size = choice.batch_size(num_replicas)
            best[size] = max(goodput, best.get(size, 0.0))
    return sorted(best.items())


def _epochs(profile: Profile, shares: tuple[float, float]) -> range:
    """Return the epochs between two shares of all epochs, at least one."""
    num_epochs = profile.application.num_epochs
    first = round(shares[0] * num_epochs)
    last = round(shares[1] * num_epochs)
    return range(first, max(last, first + 1))


def _time(alone: Alone, choice: BatchChoice, epochs: range) -> float:
    """Return the time of some epochs at one choice, if all epochs are equally long [s/M0-step]."""
    size = choice.batch_size(sum(alone.gpus_by_node))
    scale = size / alone.profile.application.init_batch_size
    steps = 0.0  # optimiser steps, for one M0-step in each epoch
    for epoch in epochs:
        steps += 1 / gain(alone.profile.gradient_statistics(size, epoch), scale)
    return alone.step_time(choice) * steps


def _panels(width: float, count: int) -> tuple[Drawing, list[Axes]]:
    """Return a new figure and its panels, side by side or, in a narrow one, one below the other."""
    if width <= 12:
        figure = new_figure(width, 5.2 * count)
        panels = figure.subplots(count, 1, squeeze=False)
    else:
        figure = new_figure(width, 6.2)
        panels = figure.subplots(1, count, squeeze=False)
    return figure, list(panels.flat)


def _draw(axes: Axes, points: Sequence[tuple[int, float]], style: int):  # type: ignore[no-untyped-def]
    """Draw a line in a style of the palette, and return it."""
    x = [count for count, _ in points]
    y = [value for _, value in points]
    (line,) = axes.plot(x, y, color=PALETTE[style], linestyle=DASHES[style], marker=MARKERS[style])
    axes.xaxis.set_minor_locator(NullLocator())
    return line


DEFAULT_APPLICATION = "cifar10"  # application of the figures of one profile; the first one where it is missing


def _draw_throughput(options: PlotRequest) -> Drawing:
    """Draw profiles against cards fitted to them, or against the agents' model fitted to them."""
    profiles = _profiles(options.profiles)
    cards: Mapping[str, Profile] | None = None
    available = list(profiles)
    line = "throughput model fitted to it"
    if options.cards is not None:
        cards = _profiles(options.cards)
        available = [name for name in profiles if name in cards]
        line = "card fitted to it"
    if not available:
        raise InvalidInputError(f"{options.cards}: no card is of an application of the profiles; name another folder")
    # Check all names before the first fit, which takes time.
    names = [_checked(name, available) for name in options.application or available]
    speeds = []
    for name in names:
        if cards is None:
            speeds.append(fitted_speed(profiles[name], agent_model(profiles[name]), name))
        else:
            speeds.append(fitted_speed(profiles[name], cards[name], name))
    points = "card" if isinstance(profiles[names[0]], CardProfile) else "measured"
    return throughput(speeds, (points, line), options.width_in_cm)


def _draw_one(figure: Callable[[Profile, float], Drawing]) -> Callable[[PlotRequest], Drawing]:
    """Return the function that draws a figure of one application."""

    def drawn(options: PlotRequest) -> Drawing:
        profiles = _profiles(options.profiles)
        default = DEFAULT_APPLICATION
        if default not in profiles:
            default = next(iter(profiles))
        name = _checked(options.application or default, list(profiles))
        return figure(profiles[name], options.width_in_cm)

    return drawn


def _checked(name: str, names: list[str]) -> str:
    """Return the name of an application. Raise InvalidInputError if it is not one of `names`."""
    if name not in names:
        raise InvalidInputError(f"there is no application {name!r}, {allowed_among(name, names)}")
    return name


def _profiles(folder: Path | None) -> Mapping[str, Profile]:
    """Return the profiles in a folder, or those that come with polluxsim, by application."""
    if folder is None:
        return ProfileFolder(None).load()
    return ProfileFolder(str(folder)).load()


DRAW_PROFILES: Mapping[str, Callable[[PlotRequest], Drawing]] = {
    "throughput": _draw_throughput,
    "batch-size": _draw_one(best_batch_sizes),
    "goodput": _draw_one(goodputs),
    "training": _draw_one(training_curves),
}
