"""`polluxsim plot`: what can be drawn, and with which options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

KINDS = {
    "jct-cdf": "completion times of all jobs, as a distribution",
    "jct-by-application": "completion times by application",
    "usage": "GPUs in use and their efficiency over time",
    "job": "the life of one job: contention, GPUs, batch size, efficiency",
    "fairness-cdf": "finish-time fairness of all jobs, as a distribution",
    "sweep": "a metric against a setting, with intervals over seeds and workloads",
    "throughput": "throughput against GPUs and batch size, measured and fitted",
    "scaling": "time of a decision against GPUs and jobs",
    "batch-size": "best batch size by GPUs and stage of training",
    "training": "statistical efficiency over training, by batch size",
}

OF_PROFILES = ("throughput", "batch-size", "training")
"""Kinds that show profiles rather than runs."""

WIDE = {*OF_PROFILES, "scaling"}
"""Kinds with panels side by side."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options of every kind of figure."""
    parser.description = "Draw a figure of finished runs into a PNG, PDF or SVG file."
    parser.epilog = "'polluxsim plot KIND --help' says more of each."
    kinds = parser.add_subparsers(title="kinds", metavar="KIND", required=True, dest="kind")
    for kind, summary in KINDS.items():
        one = kinds.add_parser(kind, help=summary)
        one.description = f"Draw {summary}."
        _OPTIONS.get(kind, _runs)(one)
        one.add_argument("-o", "--output", type=Path, default=Path(f"{kind}.png"), metavar="FILE",
                         help=".png, .pdf or .svg (default: %(default)s)")  # fmt: skip
        one.add_argument("--width", type=float, default=17.0 if kind in WIDE else 8.5, metavar="CM",
                         help="in print, 8.5 for a column and 17 for two (default: %(default)g)")  # fmt: skip
        one.set_defaults(action=_plot)


def _runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument("--each", action="store_true", help="a line for each run; else seeds and workloads are pooled")


def _usage(parser: argparse.ArgumentParser) -> None:
    _runs(parser)
    parser.add_argument("--bin", type=float, default=30.0, metavar="MINUTES",
                        help="time over which is averaged (default: %(default)g)")  # fmt: skip


def _job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument("--job", action="append", metavar="NAME",
                        help="which job, several times for more (default: the one with the most GPU-time)")  # fmt: skip
    parser.add_argument("--profiles", type=Path, metavar="FOLDER",
                        help="profiles the run was made with, if they are not where they were")  # fmt: skip


def _sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help="folder of a sweep or of a finished run, or a sweep's Parquet dataset")  # fmt: skip
    parser.add_argument("--x", required=True, metavar="SETTING", help="along the axis, like policy.p, or policy")
    parser.add_argument("--metric", "--y", default="avg_jct", help="what to draw (default: %(default)s)")
    parser.add_argument("--by", action="append", metavar="SETTING",
                        help="a line for each of its values (default: all settings that differ)")  # fmt: skip


def _profiles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("profiles", nargs="?", type=Path, metavar="PROFILES",
                        help="folder of measured profiles or of cards (default: our cards)")  # fmt: skip


def _one_profile(parser: argparse.ArgumentParser) -> None:
    _profiles(parser)
    parser.add_argument("--application", default="cifar10", metavar="NAME", help="which one (default: %(default)s)")


def _throughput(parser: argparse.ArgumentParser) -> None:
    _profiles(parser)
    parser.add_argument("--cards", type=Path, metavar="FOLDER",
                        help="cards to compare with (default: the agents' model fitted to PROFILES)")  # fmt: skip
    parser.add_argument("--application", action="append", metavar="NAME", help="only these (default: all)")


def _scaling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help="folder of a run or of a sweep, or a benchmark's .csv file")  # fmt: skip


_OPTIONS = {
    "usage": _usage,
    "job": _job,
    "sweep": _sweep,
    "throughput": _throughput,
    "scaling": _scaling,
    "batch-size": _one_profile,
    "training": _one_profile,
}


def _plot(options: argparse.Namespace) -> None:
    from polluxsim.look.plot.kinds import Subject, draw
    from polluxsim.look.plot.style import check_ending, save

    check_ending(options.output)
    save(draw(options, Subject(getattr(options, "runs", ()))), options.output)
    print(f"wrote {options.output}")
