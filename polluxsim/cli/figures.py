"""Commands that draw finished runs: `plot`, `report` and `timeline`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polluxsim.cli.options import DATASET, add_option, add_output, add_run, add_runs, add_window, path, window_of
from polluxsim.common.durations import MINUTE
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.plot.request import FIGURE_KINDS, OF_PROFILES, OPTIONS, PlotRequest

FIGURE_EXAMPLES = {"sweep": " SWEEP --x policy.p", "job": " RUN --job cifar10-97"} | dict.fromkeys(OF_PROFILES, "")
"""Arguments in the examples of the kinds that need more than a sweep."""


def add_plot(parser: ArgumentParser) -> None:
    parser.description = "Draw a figure of finished runs or of profiles, and write it to a PNG, PDF or SVG file."
    parser.epilog = (
        "'polluxsim plot KIND --help' prints the options of a kind of figure.\n\n"
        "Example: polluxsim plot jct-cdf SWEEP -o jct.pdf"
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True, dest="kind")
    for kind, summary in FIGURE_KINDS.items():
        of_kind = kinds.add_parser(kind, help=summary.replace("%", "%%"))
        of_kind.description = f"Draw {summary}."
        of_kind.epilog = f"Example: polluxsim plot {kind}{FIGURE_EXAMPLES.get(kind, ' SWEEP')} -o {kind}.pdf"
        _take_options(of_kind, kind)
        add_output(of_kind, "file to write, .png, .pdf or .svg", f"{kind}.png")
        add_option(of_kind, "width", note=f"(default: {PlotRequest(kind, x='').width_in_cm:g})")
        add_option(of_kind, "dark")
        of_kind.set_defaults(action=_plot)


ALSO = {"sweep": DATASET, "scaling": ", or the .csv file of a benchmark"}  # inputs besides folders of runs, by kind

TAKEN: Mapping[str, Mapping[str, Any]] = {
    "bin": {"note": "(default: 30min)"},
    "job": {"note": "(default: the job with the most GPU time)"},
    "profiles": {"note": "give it if the profiles of the run have been moved"},
    "x": {"required": True},
    "metric": {"default": "avg_jct", "once": True},
    "by": {"note": "it has a line for each value (default: all settings that differ)"},
    "baseline": {"note": "of the bars (default: the first setting with the same workload)"},
    "cards": {"note": "cards to compare (default: the model of the agents, fitted to PROFILES)"},
    "application": {"once": True, "note": "(default: cifar10, or the first if there is none)"},
}
"""Arguments of `add_option`, besides the name, by option. An option that is missing here has none."""


def _take_options(parser: ArgumentParser, kind: str) -> None:
    """Declare what a kind of figure draws, and its options."""
    names = list(OPTIONS[kind])
    if kind in OF_PROFILES:
        names.remove("profiles")  # here it is the subject of the figure, so it takes no --profiles
        folder = "folder of measured profiles or of cards (default: the cards of polluxsim)"
        parser.add_argument("profiles", nargs="?", type=path, metavar="PROFILES", help=folder)
    else:
        add_runs(parser, ALSO.get(kind, ""))
    for name in names:
        arguments = TAKEN.get(name, {})
        if (kind, name) == ("throughput", "application"):
            arguments = {"note": "(default: all)"}  # this figure has a panel for each application
        add_option(parser, name, **arguments)


def _plot(options: Namespace) -> None:
    """Draw a figure and write it to its file."""
    from polluxsim.look.plot.kinds import FigureSubject, draw
    from polluxsim.look.plot.style import check_ending, save

    # Before the runs are read, which may take long.
    check_ending(options.output)
    values: dict[str, Any] = {"width": options.width, "dark": options.dark}
    for name in OPTIONS[options.kind]:
        values[name] = getattr(options, name)
    if values.get("bin") is not None:
        values["bin"] /= MINUTE  # a request of a figure has minutes, as in Python
    figure = draw(PlotRequest.of(options.kind, values), FigureSubject(getattr(options, "runs", ())))
    save(figure, options.output)
    print(f"wrote {options.output}")


def add_report(parser: ArgumentParser) -> None:
    parser.description = "Write finished runs as one interactive HTML file. The file needs no network."
    parser.epilog = "Example: polluxsim report SWEEP -o report.html"
    add_runs(parser)
    add_output(parser, "HTML file to write", "report.html")
    add_option(parser, "baseline", note="(default: the first run)")
    add_window(parser)
    parser.set_defaults(action=_report)


def _report(options: Namespace) -> None:
    from polluxsim.look.report.page import write_report

    write_report(options.runs, options.output, options.baseline, window_of(options))


TIMELINE_SUFFIXES = (".json", ".json.gz")  # ends of the names of timelines


def add_timeline(parser: ArgumentParser) -> None:
    parser.description = (
        "Write a finished run as a timeline for Perfetto. The timeline has a track for each GPU, counters, and arrows "
        "where a job moves to other GPUs. Open the file at https://ui.perfetto.dev or in chrome://tracing."
    )
    parser.epilog = "Example: polluxsim timeline RUN -o run.json.gz"
    add_run(parser)
    add_output(parser, "file to write, .json or .json.gz (default: named after the run)")
    parser.set_defaults(action=_timeline)


def _timeline(options: Namespace) -> None:
    """Write a timeline. Raise InvalidInputError if the run cannot be read, or the name of the file has another end."""
    from polluxsim.common.files import atomic_write
    from polluxsim.look.timeline import write_timeline
    from polluxsim.records.storage import read_run

    if options.output is not None and not options.output.name.endswith(TIMELINE_SUFFIXES):
        raise InvalidInputError(
            f"{options.output}: the name of a timeline must end in {' or '.join(TIMELINE_SUFFIXES)}"
        )
    run = read_run(options.run)
    file = options.output or Path(f"{run.name}.perfetto.json.gz")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as temporary:
        slices = write_timeline(run, temporary, packed=file.suffix == ".gz")
    print(f"wrote {file}: {slices} slices; open it at https://ui.perfetto.dev or in chrome://tracing")
