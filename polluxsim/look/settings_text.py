"""A table of settings by metrics, as text, Markdown, LaTeX, CSV, HTML and a DataFrame, and what is real in it."""

from __future__ import annotations

import json
from html import escape
from math import floor, log10
from textwrap import fill, wrap
from typing import TYPE_CHECKING

import pandas as pd

from polluxsim.look.bootstrap import LEAST_UNITS
from polluxsim.look.html_summary import NOTE, table_html
from polluxsim.look.metric_names import in_unit, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.look.bootstrap import Estimate
    from polluxsim.look.replication import Cell, SettingsTable
    from polluxsim.look.samples import Measured

    Lines = list[list[str]]

GAP = "  "
WIDEST_LABEL = 30
NARROWEST = 40
PARTS = ("mean", "low", "high", "change", "change low", "change high")

_LATEX = str.maketrans({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#", "≥": r"$\ge$", "−": "$-$", "ρ": r"$\rho$"})


def as_text(table: SettingsTable, width: int = 80) -> str:
    """Return the table in blocks of as many columns as fit the width, means first and then changes, and its verdict."""
    width = max(width, NARROWEST)
    parts = [fill(heading(table), width), *_blocks(_means(table), width)]
    if changes := _changes(table):
        parts += [fill(f"Change {_against(table)}:", width), *_blocks(changes, width)]
    return "\n\n".join([*parts, fill(verdict(table), width)])


def as_markdown(table: SettingsTable) -> str:
    """Return the table as Markdown, means and changes in one."""
    head, *rows = _all_columns(table)
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", verdict(table)])


def as_latex(table: SettingsTable) -> str:
    """Return the table as LaTeX, for the package booktabs."""
    head, *rows = [" & ".join(cell.translate(_LATEX) for cell in line) + r" \\" for line in _all_columns(table)]
    columns = "l" + "r" * (len(_all_columns(table)[0]) - 1)
    body = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(["% " + heading(table), *body])


def as_csv(table: SettingsTable) -> str:
    """Return `as_frame` as CSV, a column for each number."""
    frame = as_frame(table)
    frame.columns = [" ".join(column).removesuffix(" mean") for column in frame.columns]
    return str(frame.to_csv()).rstrip("\n")


def as_json(table: SettingsTable) -> str:
    """Return `as_frame` as JSON: by setting and metric, what is known of it."""
    rows = {
        label: {metric: parts.droplevel(0).dropna().to_dict() for metric, parts in row.groupby(level=0, sort=False)}
        for label, row in as_frame(table).iterrows()
    }
    return json.dumps(rows, indent=2, ensure_ascii=False)


def as_html(table: SettingsTable) -> str:
    """Return the table for a notebook."""
    note = f'<div style="{NOTE}">{escape(heading(table))}<br>{escape(verdict(table))}</div>'
    return table_html(_all_columns(table)) + note


def as_frame(table: SettingsTable) -> pd.DataFrame:
    """Return the table's numbers: a row per setting, columns (metric, part), in the units that the metric names.

    Parts are mean, low and high, the ends of its 95 % interval, and the same of the change against the baseline as a
    share of it: change, change low, change high. What is not known is nan.
    """
    rows = {label: dict(_parts(row)) for label, row in table.cells.items()}
    keys = list(dict.fromkeys(key for row in rows.values() for key in row))
    columns = pd.MultiIndex.from_tuples(keys, names=["metric", "part"])
    values = [[row.get(key) for key in keys] for row in rows.values()]
    return pd.DataFrame(values, index=list(rows), columns=columns, dtype=float).rename_axis("setting")


def _parts(row: Mapping[str, Cell]) -> Iterator[tuple[tuple[str, str], float | None]]:
    for metric, cell in row.items():
        ends = [*cell.mean.estimate, *((None,) * 3 if cell.change is None else cell.change.estimate)]
        for part, end in zip(PARTS, ends, strict=True):
            yield (in_unit(metric), part), end


FORMS = {"markdown": as_markdown, "latex": as_latex, "csv": as_csv, "json": as_json}
"""Ways to write a table for other programs."""


def heading(table: SettingsTable) -> str:
    """Return what the means are over."""
    found = [cell.mean for row in table.cells.values() for cell in row.values()]
    counts, kinds = {cell.num_units for cell in found}, {cell.units for cell in found}
    if max(counts, default=1) == 1:
        return "One run each, so no intervals." if len(table.cells) > 1 else "One run."
    least, most = min(counts), max(counts)
    over = f"{least if least == most else f'{least} to {most}'} {' or '.join(sorted(kinds))}"
    sure = "[95 % interval]" if most >= LEAST_UNITS else f"no intervals, as these need {LEAST_UNITS}"
    return f"Means over {over}, {sure}."


def verdict(table: SettingsTable) -> str:
    """Return in one sentence which differences are real: those whose 95 % interval leaves out 0."""
    judged = [
        (metric, label, change.estimate)
        for metric in table.metrics
        for label, row in table.cells.items()
        if metric in row and (change := row[metric].change) is not None and change.estimate.low is not None
    ]
    if not judged:
        return "Which differences are real cannot be said: that takes six workloads or seeds in common."
    real: dict[str, list[str]] = {}
    for metric, label, estimate in judged:
        if is_real(estimate):
            real.setdefault(unit_of(metric)[0], []).append(f"{label} ({100 * estimate.value:+.0f} %)".replace("-", "−"))
    chance = f"of {len(judged)} comparisons, about {0.05 * len(judged):.0f} would look real by chance"
    if not real:
        return f"No difference {_against(table)} is real by 95 % intervals of pairs."
    words = "; ".join(f"{metric}: {', '.join(labels)}" for metric, labels in real.items())
    return f"Real by 95 % intervals of pairs, {_against(table)}: {words} ({chance})."


def is_real(change: Estimate) -> bool:
    """Return whether a change's interval leaves out 0."""
    return change.low is not None and change.high is not None and not change.low <= 0 <= change.high


def _against(table: SettingsTable) -> str:
    names = list(dict.fromkeys(table.against.values()))
    return f"against {names[0]}" if len(names) == 1 else "against the setting like it of " + ", ".join(names)


def _means(table: SettingsTable) -> Lines:
    lines = [["", *map(in_unit, table.metrics)]]
    for label, row in table.cells.items():
        cells = [row.get(metric) for metric in table.metrics]
        lines.append([label, *("–" if cell is None else _mean(cell.mean, is_bound=cell.is_bound) for cell in cells)])
    return lines


def _changes(table: SettingsTable) -> Lines:
    lines = [["", *(unit_of(metric)[0] for metric in table.metrics)]]
    for label, row in table.cells.items():
        if table.against[label] != label:
            cells = [row.get(metric) for metric in table.metrics]
            lines.append([label, *("–" if cell is None else _change(cell.change) for cell in cells)])
    return lines if len(lines) > 1 else []


def _all_columns(table: SettingsTable) -> Lines:
    """Return means and changes side by side, metric by metric."""
    means, changes = _means(table), {line[0]: line[1:] for line in _changes(table)}
    if not changes:
        return means
    lines = [["", *(cell for name in means[0][1:] for cell in (name, "change"))]]
    for label, *cells in means[1:]:
        other = changes.get(label, ["baseline"] * len(cells))
        lines.append([label, *(cell for pair in zip(cells, other, strict=True) for cell in pair)])
    return lines


def _mean(measured: Measured, *, is_bound: bool) -> str:
    value, low, high = measured.estimate
    digits = max(0, 2 - floor(log10(abs(value)))) if value else 0
    interval = "" if low is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{'≥ ' if is_bound else ''}{value:.{digits}f}{interval}".replace("-", "−")


def _change(measured: Measured | None) -> str:
    if measured is None:
        return "–"
    value, low, high = measured.estimate
    digits = 1 if abs(value) < 1 else 0
    interval = "" if low is None or high is None else f" [{100 * low:+.{digits}f}, {100 * high:+.{digits}f}]"
    return f"{100 * value:+.{digits}f} %{interval}".replace("-", "−")


def _blocks(lines: Lines, width: int) -> Iterator[str]:
    """Yield columns in blocks no wider than the terminal, each with the labels before it."""
    label_width = min(max(len(line[0]) for line in lines), WIDEST_LABEL, width // 2)
    labels = [wrap(line[0], label_width) or [""] for line in lines]
    columns = list(zip(*(line[1:] for line in lines), strict=True))
    widths = [max(map(len, column)) for column in columns]
    for block in _folded(widths, width - label_width):
        rows = zip(labels, *(columns[place] for place in block), strict=True)
        yield "\n".join(
            _row(label, cells, (label_width, *(widths[place] for place in block))) for label, *cells in rows
        )


def _folded(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return which columns stand in which block."""
    blocks: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] + len(GAP) for other in blocks[-1]) + width + len(GAP) > room:
            blocks.append([])
        blocks[-1].append(place)
    return blocks


def _row(label: Sequence[str], cells: Sequence[str], widths: Sequence[int]) -> str:
    first = GAP.join([label[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True))])
    return "\n".join([first.rstrip(), *(f"  {line}" for line in label[1:])])
