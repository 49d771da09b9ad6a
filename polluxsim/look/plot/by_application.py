"""Completion times by application, side by side for several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polluxsim.look.colours import looks_of
from polluxsim.look.plot.lines import legend
from polluxsim.look.plot.style import ONE_COLUMN, new_figure, plain, styled
from polluxsim.look.series import hours_by_application, spread_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polluxsim.look.groups import Group
    from polluxsim.look.plot.style import Drawing
    from polluxsim.look.series import Spread


@styled
def jct_by_application(groups: Sequence[Group], width: float = ONE_COLUMN) -> Drawing:
    """Draw the mean completion time of each application's jobs, with a bar from the 10th to the 90th percentile.

    Each group has a marker in each application's row; the jobs of all its runs count. A job that was cut off counts
    with its age at the end of the run, as in the table of runs.
    """
    found = [spreads(group) for group in groups]
    means = {name: max(row[name].mean for row in found if name in row) for row in found for name in row}
    names = sorted(means, key=lambda name: means[name])
    rows = len(names) * max(len(groups), 2)
    figure = new_figure(width, 1.6 + 0.27 * rows)
    axes = figure.subplots()
    places = (np.arange(len(groups)) - (len(groups) - 1) / 2) * min(0.8 / len(groups), 0.3)
    handles = {}
    for group, look, row, offset in zip(groups, looks_of(groups), found, places[::-1], strict=True):
        here = [place for place, name in enumerate(names) if name in row]
        mean, low, high, _ = np.array([row[names[place]] for place in here]).reshape(-1, 4).T
        axes.hlines(np.array(here) + offset, low, high, color=look.color, linewidth=1.3)
        (points,) = axes.plot(mean, np.array(here) + offset, look.marker, color=look.color, label=group.label)
        handles[points] = group.label
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(plain)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("job completion time [h], mean and 10–90 %")
    if len(groups) > 1:
        legend(figure, handles)
    return figure


def spreads(group: Group) -> dict[str, Spread]:
    """Return the completion times of a group's jobs by application."""
    found = [hours_by_application(run.result) for run in group.runs]
    names = dict.fromkeys(name for hours in found for name in hours)
    return {name: spread_of(np.concatenate([hours[name] for hours in found if name in hours])) for name in names}
