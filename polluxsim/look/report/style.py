"""How the report's figures look: the library's figures without a background of their own, so that the page's shows.

Text, axes and grids take their colours from the page's style sheet (`--bk-…` in report.css), which is how they follow
light and dark mode.
"""

from __future__ import annotations

from typing import Any

from bokeh.models import BoxZoomTool, PanTool, ResetTool, Span, WheelZoomTool
from bokeh.plotting import figure

FONT = "system-ui, sans-serif"

RUN_COLORS = ("#2f7fc1", "#d55e00", "#0a8f68", "#b0609a", "#a67c00", "#6b7280", "#7a6bd0", "#c2475d")
"""At least 3:1 against both the light and the dark surface; runs beyond them begin anew, with another dash."""

RUN_DASHES = ("solid", "dashed", "dotted", "dotdash")


def run_color(number: int) -> str:
    """Return the colour of the run at an index."""
    return RUN_COLORS[number % len(RUN_COLORS)]


def run_dash(number: int) -> str:
    """Return the dash of the run at an index."""
    return RUN_DASHES[number // len(RUN_COLORS) % len(RUN_DASHES)]


def plain_figure(name: str, height: int, **options: Any) -> figure:
    """Return an empty figure that is as wide as the page lets it be.

    Drags belong to the page until someone picks a tool, and wheel zoom needs the control key, so that the page scrolls.
    """
    wheel = WheelZoomTool(modifiers={"ctrl": True}, dimensions="width")
    pan, box = PanTool(dimensions="width"), BoxZoomTool(dimensions="width")
    plot = figure(
        name=name,
        height=height,
        sizing_mode="stretch_width",
        tools=[pan, box, wheel, ResetTool()],
        active_drag=None,
        active_scroll=wheel,
        toolbar_location="above",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        min_border_left=52,
        min_border_right=12,
        lod_threshold=None,
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    for axis in plot.axis:
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
        axis.minor_tick_line_color = None
        axis.major_tick_line_color = None
        axis.axis_line_color = None
    plot.xgrid.visible = False
    return plot


def tooltip(*lines: tuple[str, str]) -> str:
    """Return the text of a tooltip in the page's colours, from what each line is about and its value."""
    rows = "".join(
        f'<div><span style="color: var(--muted)">{label}</span> <b class="told">{value}</b></div>'
        for label, value in lines
    )
    return (
        '<div style="margin: -7px -13px; padding: 8px 12px; border-radius: 4px; background: var(--surface); '
        f'border: 1px solid var(--line); color: var(--ink); font: 13px/1.5 {FONT}">{rows}</div>'
    )


def moment(plot: figure) -> None:
    """Add the line that marks the moment which the time slider shows; the page moves it."""
    plot.add_layout(Span(name=f"now-{plot.name}", dimension="height", location=0, line_width=1, line_color="#888888"))
