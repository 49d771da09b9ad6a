"""What the page fills with one run: the map of GPUs over time, the cluster at a moment, the table of jobs, one job."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from bokeh.core.properties import value
from bokeh.events import Tap
from bokeh.models import (
    CDSView,
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    DataTable,
    FixedTicker,
    HoverTool,
    HTMLTemplateFormatter,
    IndexFilter,
    InlineStyleSheet,
    NumberFormatter,
    NumeralTickFormatter,
    Range1d,
    TableColumn,
)

from polluxsim.look.report.style import FONT, moment, plain_figure, tooltip

if TYPE_CHECKING:
    from bokeh.plotting import figure

MAP_HEIGHT, CLUSTER_HEIGHT, JOB_HEIGHT, TABLE_HEIGHT = 460, 320, 190, 480
"""[px]"""

TABLE_STYLE = """
.slick-header, .slick-header-columns, .slick-header-column, .slick-row, .slick-cell, .bk-data-table, .slick-viewport {
  background: var(--surface) !important; color: var(--ink) !important; border-color: var(--line) !important; }
.slick-header-column { border: 0 !important; border-bottom: 2px solid var(--line) !important; height: 34px !important; }
.slick-cell { border: 0 !important; border-bottom: 1px solid var(--line) !important; padding: 0 8px !important;
  font: 14px/32px system-ui, sans-serif; font-variant-numeric: tabular-nums; }
.slick-row:hover .slick-cell { background: var(--surface-2) !important; }
.slick-cell > * { line-height: inherit; }
.slick-column-name { font: 600 13px/28px system-ui, sans-serif; }
.slick-sort-indicator { filter: grayscale(1); }
a { color: var(--accent); }
a:focus-visible { outline: 3px solid var(--accent); }
"""

LINK = '<a href="<%- href %>"><%- value %></a>'


def occupancy_map(hours: Range1d) -> figure:
    """Return the map of GPUs over time: an image that the page paints for what is in sight, and labels on it.

    Where nodes are down, they are hatched.

    Parameters
    ----------
    hours
        The axis of time that it shares with other figures [h].
    """
    plot = plain_figure("map", MAP_HEIGHT, x_range=hours, y_range=Range1d(0, 1))
    nothing = ColumnDataSource(
        {"image": [np.zeros((1, 1), dtype=np.uint32)], "x": [0.0], "y": [0.0], "dw": [1.0], "dh": [1.0]},
        name="map-image",
    )
    image = plot.image_rgba("image", "x", "y", "dw", "dh", source=nothing)
    down = ColumnDataSource({"left": [], "right": [], "top": [], "bottom": []}, name="map-down")
    plot.quad(
        "left", "right", "top", "bottom", source=down, fill_color=None, line_color="#808a96",
        hatch_pattern="right_diagonal_line", hatch_color="#808a96",
    )  # fmt: skip
    labels = ColumnDataSource({"x": [], "y": [], "text": [], "color": []}, name="map-labels")
    plot.text(
        "x", "y", "text", source=labels, text_color="color", text_font=value(FONT), text_font_size="11px",
        text_baseline="middle", x_offset=4,
    )  # fmt: skip
    formatter = CustomJSHover(code="return polluxReport.map.tell(special_vars.x, special_vars.y, format)")
    tooltips = tooltip(("job", "$x{job}"), ("", "$x{gpus}"), ("batch size", "$x{batch}"), ("held", "$x{held}"))
    plot.add_tools(HoverTool(renderers=[image], tooltips=tooltips, formatters={"$x": formatter}))
    plot.js_on_event(Tap, CustomJS(code="polluxReport.map.tapped(cb_obj.x, cb_obj.y)"))
    plot.xaxis.axis_label = "time [h]"
    plot.yaxis.axis_label = "node"
    plot.yaxis.ticker = FixedTicker(ticks=[])
    plot.ygrid[0].name = "map-nodes"
    plot.ygrid[0].ticker = FixedTicker(ticks=[])
    plot.ygrid.level = "overlay"
    moment(plot)
    return plot


def cluster_view() -> figure:
    """Return the cluster at a moment: a square for each GPU, the GPUs of a node together."""
    plot = plain_figure("cluster", CLUSTER_HEIGHT, x_range=Range1d(0, 1), y_range=Range1d(1, 0))
    columns: dict[str, list[object]] = {name: [] for name in ("x", "y", "color", "line", "node", "gpu", "job", "held")}
    source = ColumnDataSource(columns, name="cluster-gpus")
    gpus = plot.rect("x", "y", 0.9, 0.9, source=source, fill_color="color", line_color="line", line_width=1)
    nodes = ColumnDataSource({"x": [], "y": [], "text": []}, name="cluster-nodes")
    plot.text(
        "x",
        "y",
        "text",
        source=nodes,
        text_color="#808a96",
        text_font=value(FONT),
        text_font_size="11px",
        text_baseline="bottom",
    )
    tooltips = tooltip(("job", "@job"), ("", "node @node, GPU @gpu"), ("", "@held"))
    plot.add_tools(HoverTool(renderers=[gpus], tooltips=tooltips))
    plot.js_on_event(Tap, CustomJS(code="polluxReport.cluster.tapped(cb_obj.x, cb_obj.y)"))
    plot.axis.visible = False
    plot.grid.visible = False
    plot.toolbar_location = None
    plot.min_border_left = 4
    return plot


def job_table() -> DataTable:
    """Return the table of jobs; it sorts by itself, and the page filters it."""
    number, whole = (
        NumberFormatter(format="0,0.00", text_align="right"),
        NumberFormatter(format="0,0", text_align="right"),
    )
    columns = [
        TableColumn(field="job", title="job", formatter=HTMLTemplateFormatter(template=LINK), width=190),
        TableColumn(field="application", title="application", width=130),
        TableColumn(field="status", title="status", width=100),
        TableColumn(field="submitted", title="submitted [h]", formatter=number, width=120),
        TableColumn(field="delay", title="first GPU after [min]", formatter=number, width=170),
        TableColumn(field="jct", title="JCT [h]", formatter=number, width=95),
        TableColumn(field="gpu_hours", title="GPU-hours", formatter=number, width=110),
        TableColumn(field="mean_gpus", title="GPUs on average", formatter=number, width=150),
        TableColumn(field="restarts", title="restarts", formatter=whole, width=85),
    ]
    source = ColumnDataSource({column.field: [] for column in columns} | {"href": []}, name="jobs")
    return DataTable(
        name="job-table",
        source=source,
        view=CDSView(filter=IndexFilter(indices=[])),
        columns=columns,
        index_position=None,
        height=TABLE_HEIGHT,
        row_height=33,
        sizing_mode="stretch_width",
        autosize_mode="none",
        selectable=False,
        reorderable=False,
        stylesheets=[InlineStyleSheet(css=TABLE_STYLE)],
    )


def job_figures() -> list[figure]:
    """Return the figures of one job's life: GPUs, batch size, efficiency, progress."""
    hours = Range1d(0, 1, name="job-hours")
    had = ColumnDataSource({"time": [], "gpus": [], "batch": []}, name="job-had")
    done = ColumnDataSource({"time": [], "efficiency": [], "progress": []}, name="job-done")
    figures = []
    for name, title, source, field in (
        ("gpus", "GPUs", had, "@gpus{0,0}"),
        ("batch", "batch size", had, "@batch{0,0}"),
        ("efficiency", "efficiency", done, "@efficiency{0.0 %}"),
        ("progress", "progress", done, "@progress{0.0 %}"),
    ):
        plot = plain_figure(f"job-{name}", JOB_HEIGHT, x_range=hours)
        _mark_waits(plot)
        draw = plot.line if name == "progress" else partial(plot.step, mode="after")
        line = draw("time", name, source=source, line_width=2)
        line.name = f"{plot.name}-line"
        told = tooltip(("at", "@time{0.00} h"), (title, field))
        plot.add_tools(HoverTool(renderers=[line], tooltips=told, mode="vline", line_policy="prev"))
        plot.y_range.start = 0
        plot.min_border_left = 76
        plot.yaxis.axis_label = title
        figures.append(plot)
    for plot in figures[2:]:
        plot.y_range = Range1d(0, 1.04)
        plot.yaxis.formatter = NumeralTickFormatter(format="0 %")
    figures[-1].xaxis.axis_label = "time [h]"
    return figures


def _mark_waits(plot: figure) -> None:
    """Mark when the job waits, and when it starts or restarts."""
    waits = ColumnDataSource({"start": [], "end": []}, name=f"{plot.name}-waits")
    starts = ColumnDataSource({"time": []}, name=f"{plot.name}-starts")
    plot.vstrip("start", "end", source=waits, fill_color="#999999", fill_alpha=0.22, line_color=None)
    plot.vspan("time", source=starts, line_color="#999999", line_alpha=0.7, line_dash="dotted", line_width=1)
