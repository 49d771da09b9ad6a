"""Commands that draw finished runs: `plot`, `report` and `trace`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import shared_options
from polluxsim.common.errors import InvalidInputError
from polluxsim.look.plot.request import FIGURE_KINDS, OF_PROFILES, OPTIONS, PlotRequest

if TYPE_CHECKING:
    import argparse
    from argparse import ArgumentParser, Namespace

FIGURE_EXAMPLES = {"sweep": " SWEEP --x policy.p", "job": " RUN --job cifar10-97"} | dict.fromkeys(OF_PROFILES, "")
"""Arguments in the examples of the kinds that need more than a sweep."""


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Draw a figure of finished runs or of profiles, and write it to a PNG, PDF or SVG file."
    parser.epilog = (
        "'polluxsim plot KIND --help' prints the options of a kind of figure.\n\n"
        "Example: polluxsim plot jct-cdf SWEEP -o jct.pdf"
    )
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True, dest="kind")
    for kind, summary in FIGURE_KINDS.items():
        one = kinds.add_parser(kind, help=summary.replace("%", "%%"))
        one.description = f"Draw {summary}."
        one.epilog = f"Example: polluxsim plot {kind}{FIGURE_EXAMPLES.get(kind, ' SWEEP')} -o {kind}.pdf"
        _OPTIONS.get(kind, _runs)(one)
        one.add_argument("-o", "--output", type=Path, default=Path(f"{kind}.png"), metavar="FILE",
                         help="file to write, .png, .pdf or .svg (default: %(default)s)")  # fmt: skip
        width = PlotRequest(kind, x="").width_in_cm
        one.add_argument("--width", type=float, metavar="CM",
                         help=f"width in print; 8.5 fits one column and 17 fits two (default: {width:g})")  # fmt: skip
        one.set_defaults(action=_plot)


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=shared_options.RUNS)
    parser.add_argument("--each", action="store_true",
                        help="draw a line for each run; by default the runs of a setting are pooled")  # fmt: skip


def _usage(parser: argparse.ArgumentParser) -> None:
    _runs(parser)
    parser.add_argument("--bin", type=float, default=30.0, metavar="MINUTES",
                        help="length of the averaging window (default: %(default)g)")  # fmt: skip


def _job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=shared_options.RUNS)
    parser.add_argument("--job", action="append", metavar="NAME",
                        help=f"name of a job; {shared_options.REPEATED} (default: the job with the most GPU time)",
                        )  # fmt: skip
    parser.add_argument("--profiles", type=Path, metavar="FOLDER",
                        help="profiles of the run, if they have been moved")  # fmt: skip


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help=f"{shared_options.RUNS}, or a sweep's Parquet dataset")  # fmt: skip
    parser.add_argument("--x", required=True, metavar="SETTING",
                        help="setting on the horizontal axis, like policy.p or policy")  # fmt: skip
    parser.add_argument("--metric", "--y", default="avg_jct", help="metric to draw (default: %(default)s)")
    parser.add_argument("--by", action="append", metavar="SETTING",
                        help="setting that has a line for each value (default: all settings that differ)")  # fmt: skip


def _profiles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profiles", nargs="?", type=Path, metavar="PROFILES",
                        help="folder of measured profiles or of cards (default: the cards of polluxsim)")  # fmt: skip


def _one_profile(parser: argparse.ArgumentParser) -> None:
    _profiles(parser)
    parser.add_argument("--application", metavar="NAME", help="application to draw (default: cifar10)")  # fmt: skip


def _throughput(parser: argparse.ArgumentParser) -> None:
    _profiles(parser)
    parser.add_argument("--cards", type=Path, metavar="FOLDER",
                        help="cards to compare (default: the model of the agents, fitted to PROFILES)")  # fmt: skip
    parser.add_argument("--application", action="append", metavar="NAME",
                        help=f"application to draw; {shared_options.REPEATED} (default: all)")  # fmt: skip


def _scaling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help=f"{shared_options.RUNS}, or the .csv file of a benchmark")  # fmt: skip


_OPTIONS = {
    "usage": _usage,
    "job": _job,
    "sweep": _sweep,
    "throughput": _throughput,
    "scaling": _scaling,
    "batch-size": _one_profile,
    "goodput": _one_profile,
    "training": _one_profile,
}


def _plot(options: argparse.Namespace) -> None:
    from polluxsim.look.plot.kinds import Subject, draw
    from polluxsim.look.plot.style import check_ending, save

    check_ending(options.output)
    given = {name: getattr(options, name) for name in ("width", *OPTIONS[options.kind])}
    figure = draw(PlotRequest.of(options.kind, given), Subject(getattr(options, "runs", ())))
    save(figure, options.output)
    print(f"wrote {options.output}")


def add_report(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = "Write finished runs as one interactive HTML file. The file needs no network."
    parser.epilog = "Example: polluxsim report SWEEP -o report.html"
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=shared_options.RUNS)
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
                        help="HTML file to write (default: %(default)s)")  # fmt: skip
    parser.add_argument("--baseline", metavar="NAME", help=shared_options.BASELINE)
    parser.set_defaults(action=_report)


def _report(options: Namespace) -> None:
    from polluxsim.look.report.page import write_report

    write_report(options.runs, options.output, options.baseline)


TIMELINE_SUFFIXES = (".json", ".json.gz")


def add_trace(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Write a finished run as a timeline for Perfetto. The timeline has a track for each GPU, counters, and arrows "
        "where a job moves to other GPUs. Open the file at https://ui.perfetto.dev or in chrome://tracing."
    )
    parser.epilog = "Example: polluxsim trace RUN -o run.json.gz"
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE",
                        help="file to write, .json or .json.gz (default: named after the run)")  # fmt: skip
    parser.set_defaults(action=_trace)


def _trace(options: Namespace) -> None:
    from polluxsim.common.files import appearing_whole
    from polluxsim.look.timeline import write_timeline
    from polluxsim.records.storage import read_run

    if options.output is not None and not options.output.name.endswith(TIMELINE_SUFFIXES):
        raise InvalidInputError(
            f"{options.output}: give the name of a file that ends in {' or '.join(TIMELINE_SUFFIXES)}"
        )
    run = read_run(options.run)
    path = options.output or Path(f"{run.name}.perfetto.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing_whole(path) as temporary:
        slices = write_timeline(run, temporary, packed=path.suffix == ".gz")
    print(f"wrote {path}: {slices} slices; open it at https://ui.perfetto.dev or in chrome://tracing")
