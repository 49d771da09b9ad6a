"""The command line: finds the subcommand and turns errors into one line and an exit status."""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from polluxsim import __version__
from polluxsim.cli.plot import add_plot
from polluxsim.errors import InvalidConfigError, PolluxSimError, did_you_mean
from polluxsim.run.interrupt import INTERRUPTED, MESSAGE, ending_at_once, raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

BAD_INPUT = 2

COMMANDS: Mapping[str, Mapping[str, str]] = {
    "run": {"run": "replay a workload under a policy; with -m, a sweep"},
    "look at finished runs": {
        "table": "print them side by side",
        "plot": "draw a figure of them",
        "report": "write them as one interactive HTML file",
        "trace": "write one as a timeline for Perfetto or chrome://tracing",
        "why": "say why a job waited, started, grew, shrank or moved",
    },
    "workloads, logs and profiles": {
        "import": "check measurements or a cluster's log, write them as Parquet",
        "generate": "draw a workload like Philly's into a file",
        "sample": "draw a workload from the Philly trace into a file",
        "map": "put jobs with profiles in place of a trace's jobs",
        "fit": "fit profile cards to measurements",
    },
    "the paper": {"reproduce": "reproduce a table or figure of it"},
}
"""What each command does, by what one wants; one screen shows them all."""

# Everything slow to import is imported by the subcommand that needs it, so that --help answers at once.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments
        What stands after `polluxsim` on the command line; by default that of this process.

    Returns
    -------
    int
        Exit status: 0 if all went well, 2 for bad input, 130 when interrupted.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    with _warnings_in_one_line():
        return _status(arguments)


def _status(arguments: Sequence[str]) -> int:
    """Run one command; return its exit status."""
    try:
        if arguments[:1] == ["run"]:
            with ending_at_once():
                return _run(arguments[1:])
        with raising():
            options = parsed(arguments)
            return int(options.action(options))
    except PolluxSimError as error:
        print(f"polluxsim: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt as error:
        print(f"polluxsim: {error}" if str(error) else MESSAGE, file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        return _nobody_reads()
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"polluxsim: {where}{error.strerror or error}", file=sys.stderr)
        return BAD_INPUT


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Tell what is meant for users, by Python's own rule a FutureWarning, as we tell errors: without lines of code."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, FutureWarning):
                print(f"polluxsim: {message}", file=sys.stderr)
            else:
                before(message, category, *where, **more)

        warnings.showwarning = show
        yield


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options; overrides of `reproduce` may stand among them, which argparse would not take."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and (arguments[0] != "reproduce" or any(word.startswith("-") or "=" not in word for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.names += rest
    return options


def _nobody_reads() -> int:
    """Leave quietly when whoever read our output has had enough; Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


class _Parser(argparse.ArgumentParser):
    """Raises its errors, each in one line."""

    def error(self, message: str) -> NoReturn:
        """Raise an error, with what may have been meant in place of a wrong choice."""
        if found := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message):
            message += did_you_mean(found[1], re.findall(r"[\w-]+", found[2]))
        command = self.prog.partition(" ")[2]
        raise InvalidConfigError(f"{command + ': ' if command else ''}{message} ('{self.prog} --help' says more)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="polluxsim",
        usage="polluxsim COMMAND [OPTION ...]",
        description=_overview(),
        epilog="'polluxsim COMMAND --help' says more of each; '--version' says which this is.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"polluxsim {__version__}", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(prog="polluxsim", metavar="COMMAND", required=True, help=argparse.SUPPRESS)
    commands.add_parser("run", add_help=False)
    for name, add in ADDED.items():
        add(commands.add_parser(name))
    return parser


def _overview() -> str:
    """Return what the program is, and its commands by what they are for."""
    lines = ["A trace-driven discrete-event simulator of deep-learning cluster scheduling.", ""]
    for purpose, commands in COMMANDS.items():
        lines += [f"{purpose}:", *(f"    {name:<11}{what}" for name, what in commands.items())]
    return "\n".join(lines)


def _add_table(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print up to four runs side by side; of a sweep, a row for each setting: means over seeds and workloads "
        "with 95 % intervals, their changes against one setting by pairs, and which of these are real."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help="folder of a finished run or of a sweep, or a sweep's Parquet dataset")  # fmt: skip
    parser.add_argument("--metric", action="append", metavar="NAME",
                        help="a column, like p50_jct; may be given again (default: the usual six)")  # fmt: skip
    parser.add_argument("--against", metavar="SETTING",
                        help="what to compare with, like policy.p=-1 (default: nearest to the defaults)")  # fmt: skip
    forms = parser.add_mutually_exclusive_group()
    for form, what in (("markdown", "Markdown"), ("latex", "LaTeX"), ("csv", "CSV, a column for each number")):
        forms.add_argument(f"--{form}", action="store_const", const=form, dest="form", help=f"write {what}")
    parser.set_defaults(action=_table)


def _add_reproduce(parser: argparse.ArgumentParser) -> None:
    parser.description = "Run what a table or figure of the paper needs, compare it with what was published, draw it."
    words = "table2, fig8a, … or all; 'list' names them; KEY=VALUE sets something of every run"
    parser.add_argument("names", nargs="+", metavar="NAME", help=words)
    parser.add_argument("--profiles", type=Path, metavar="DIR", help="measured profiles (default: our cards)")
    parser.add_argument(
        "--workloads", type=Path, metavar="DIR", help="folder that holds the published workloads/ (default: generated)"
    )
    parser.add_argument("--out", type=Path, default=Path("reproduced"), metavar="DIR", help="default: %(default)s")
    words = "generated workloads (default: 8), or runs of each published one (6)"
    parser.add_argument("--seeds", type=int, metavar="N", help=words)
    parser.add_argument("--until", type=float, metavar="SHARE", help="add seeds until every interval is this narrow")
    parser.add_argument("--most-seeds", type=int, default=40, metavar="N", help="but no more (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=160, metavar="N", help="of a generated workload at load 1")
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a published number is not met")
    parser.set_defaults(action=_reproduce)


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write finished runs as one interactive HTML file that needs no network."
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a finished run, or of a sweep")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE",
        help="HTML file to write (default: %(default)s)",
    )  # fmt: skip
    parser.set_defaults(action=_report)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a finished run as a timeline: a track for every GPU, counters, and arrows from the GPUs a job had to "
        "those it got instead. Open the file at https://ui.perfetto.dev or in chrome://tracing."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write (.json or .json.gz; default: after the run)"
    )
    parser.set_defaults(action=_trace)


def _add_why(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Say in words what decided about a job: its whole story, or with TIME what held at that moment. Policies of "
        "your own are explained by what they say of themselves, or else as far as the allocations tell."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("job", metavar="JOB", help="name of a job of it")
    parser.add_argument("time", nargs="?", metavar="TIME", help="time since the start, in seconds or as H:MM:SS")
    parser.set_defaults(action=_why)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.description = "Read a cluster's log, check every row, and write it as Parquet."
    parser.add_argument("format", metavar="FORMAT", help="format of the log: philly, slurm, …")
    parser.add_argument("source", type=Path, metavar="SRC", help="file or folder to read")
    parser.add_argument("destination", type=Path, metavar="DST", help=".parquet file to write")
    parser.add_argument("--skip-bad", action="store_true", help="count rows that cannot be read, and leave them out")
    parser.add_argument("--gpus", type=int, metavar="N", help="size of the log's cluster, for the report")
    parser.add_argument("--time-zone", metavar="NAME", help="zone of a log's times that name none, like Asia/Shanghai")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.set_defaults(action=_import)


def _add_fit(parser: argparse.ArgumentParser) -> None:
    parser.description = "Fit a profile card to each measured application and print how far the cards are off."
    parser.add_argument("measured", type=Path, metavar="MEASURED", help="folder of measured profiles")
    parser.add_argument("output", type=Path, metavar="OUT", help="folder to write the cards into")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw measured against fitted throughput")
    parser.set_defaults(action=_fit)


def _add_draw(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profiles", type=Path, metavar="DIR", help="folder of cards or measurements (default: ours)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawing (default: %(default)s)")
    parser.add_argument(
        "--realistic", action="store_true", help="the trace's GPUs with the initial batch size, not tuned ones"
    )


def _add_sample(parser: argparse.ArgumentParser) -> None:
    parser.description = "Draw jobs from the Philly trace, as the paper's evaluation did, into a workload file."
    parser.add_argument("trace", type=Path, metavar="TRACE", help="philly.csv of the Pollux artifact, or .parquet")
    parser.add_argument("output", type=Path, metavar="OUT", help="workload file to write (.csv)")
    parser.add_argument("--jobs", type=int, default=160, metavar="N", help="jobs to draw (default: %(default)s)")
    _add_draw(parser)
    parser.set_defaults(action=_sample)


def _add_generate(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draw a load by the statistics of the Philly trace. OUT.csv is a workload of applications with profiles; "
        "OUT.parquet is a trace of jobs with GPUs and durations, as 'polluxsim import' writes it."
    )
    parser.add_argument("output", type=Path, metavar="OUT", help="file to write (.csv or .parquet)")
    parser.add_argument(
        "--kind", choices=("sampled", "replay"),
        help="independent draws as in the paper, or bursts by hour and weekday (default: sampled, replay for .parquet)",
    )  # fmt: skip
    _add_draw(parser)
    parser.add_argument("--hours", type=int, metavar="H", help="length (default: 8; 1920, 80 days, for .parquet)")
    parser.add_argument("--jobs", type=int, metavar="N", help="jobs to draw (sampled; default: 160)")
    parser.add_argument("--start", type=int, metavar="H", help="hour it begins, from Monday 0 h UTC (replay)")
    parser.add_argument("--rate", type=float, metavar="X", help="times as many bursts as in the trace (replay)")
    parser.add_argument(
        "--heartbeat", action=argparse.BooleanOptionalAction, default=None, help="a short job every 10 min (replay)"
    )
    parser.set_defaults(action=_generate)


def _add_map(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Put jobs of applications with profiles in place of a trace's jobs, write the workload, and print what was "
        "left out."
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="trace, as 'polluxsim import' writes it (.parquet)")
    parser.add_argument("output", type=Path, metavar="OUT", help="workload file to write (.csv)")
    parser.add_argument(
        "--rule", default="gpu-time-class", metavar="NAME",
        help="gpu-time-class (the paper's), or a class of your own as module.Class (default: %(default)s)",
    )  # fmt: skip
    _add_draw(parser)
    parser.add_argument("--start", type=float, default=0, metavar="H", help="start of the window, from the trace's [h]")
    parser.add_argument("--hours", type=float, metavar="H", help="length of the window (default: to the end)")
    parser.add_argument(
        "--min-duration", type=float, default=60, metavar="S", help="shortest jobs used [s] (default: %(default)s)"
    )
    parser.add_argument(
        "--max-gpu-hours",
        type=float,
        default=1000,
        metavar="H",
        help="use jobs of less than this (default: %(default)s)",
    )
    parser.add_argument(
        "--status", action="append", metavar="STATUS",
        help="use jobs that ended so, or 'any'; may be given again (default: completed)",
    )  # fmt: skip
    parser.set_defaults(action=_map)


def _run(arguments: Sequence[str]) -> int:
    # Nothing here is large enough for a linear algebra library's threads, and starting them takes longer than the work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from polluxsim.cli.run import run

    return run(arguments)


def _table(options: argparse.Namespace) -> int:
    from polluxsim.cli.files import show_table

    return show_table(options)


def _reproduce(options: argparse.Namespace) -> int:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from polluxsim.cli.reproduce import reproduce

    return reproduce(options)


def _report(options: argparse.Namespace) -> int:
    from polluxsim.cli.report import write_report

    return write_report(options.runs, options.output)


def _trace(options: argparse.Namespace) -> int:
    from polluxsim.cli.timeline import trace

    return trace(options.run, options.output)


def _why(options: argparse.Namespace) -> int:
    from polluxsim.cli.why import why

    return why(options.run, options.job, options.time)


def _import(options: argparse.Namespace) -> int:
    from polluxsim.cli.files import import_log

    return import_log(options)


def _fit(options: argparse.Namespace) -> int:
    from polluxsim.cli.files import fit_profiles

    return fit_profiles(options.measured, options.output, options.plot)


def _sample(options: argparse.Namespace) -> int:
    from polluxsim.cli.loads import sample_workload

    return sample_workload(options)


def _generate(options: argparse.Namespace) -> int:
    from polluxsim.cli.loads import generate_load

    return generate_load(options)


def _map(options: argparse.Namespace) -> int:
    from polluxsim.cli.loads import map_trace

    return map_trace(options)


ADDED: Mapping[str, Callable[[argparse.ArgumentParser], None]] = {
    "table": _add_table,
    "plot": add_plot,
    "report": _add_report,
    "trace": _add_trace,
    "why": _add_why,
    "import": _add_import,
    "generate": _add_generate,
    "sample": _add_sample,
    "map": _add_map,
    "fit": _add_fit,
    "reproduce": _add_reproduce,
}
