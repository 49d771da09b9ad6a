"""`polluxsim conformance`: compare with published numbers of other simulators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.cli import option_help
from polluxsim.cli.reproduce import DATA_FOLDER, DIFFERS, NOT_MADE, add_data
from polluxsim.errors import InvalidConfigError, InvalidInputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from polluxsim.paper.inputs import Inputs


def add(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Compare polluxsim with the published numbers of other simulators. The command makes the runs for which the "
        "data folder has the inputs. The exit status is 1 if a number is not met. A second call makes only the runs "
        "that are missing."
    )
    parser.epilog = "Example: polluxsim conformance --data DATA"
    add_data(parser)
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="make also the runs that take minutes")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("conformance"), metavar="DIR", help=option_help.OUT)
    parser.add_argument("--workers", type=int, metavar="N", help=option_help.WORKERS)
    parser.set_defaults(action=_conformance)


def _conformance(options: Namespace) -> int:
    """Run and judge everything, and write one table."""
    from polluxsim.files import appearing_whole
    from polluxsim.look.console import console
    from polluxsim.paper.batch import batch_of
    from polluxsim.paper.conformance import conformance_frame, conformance_table, experiments, judged, left_out, why_not
    from polluxsim.paper.outcome import Request
    from polluxsim.paper.runs import Place

    inputs = _inputs(options)
    if not (chosen := experiments(inputs, everything=options.everything)):
        raise InvalidInputError(f"{inputs.data}: none of the data that published numbers are of")
    if options.workers is not None and options.workers < 1:
        raise InvalidConfigError(f"--workers is {options.workers}, allowed is a whole number ≥ 1")
    request = Request(inputs, 1, 1, None, (), options.out, Place(options.out / "runs", options.workers))
    batch = batch_of(chosen, request)
    rows = judged(batch.outcomes(request))
    console().print(conformance_table(rows))
    for note in (*why_not(rows), *left_out(inputs, everything=options.everything)):
        console().print(f"  {note}", style="dim")
    with appearing_whole(options.out / "conformance.csv") as path:
        conformance_frame(rows).to_csv(path, index=False, lineterminator="\n")
    met = sum(row.verdict.passed is True for _, row in rows)
    console().print(f"{met} of {len(rows)} published numbers are met; wrote {options.out / 'conformance.csv'}")
    return NOT_MADE if batch.failures else DIFFERS if met < len(rows) else 0


def _inputs(options: Namespace) -> Inputs:
    from polluxsim.paper.inputs import Inputs

    if options.data is None:
        raise InvalidConfigError(f"give the folder of published data with --data DIR or {DATA_FOLDER}")
    if not options.data.is_dir():
        raise InvalidInputError(f"{options.data}: no such folder, needed is the one that holds rigid/, osdi21/, …")
    own = options.data / "osdi21" if (options.data / "osdi21").is_dir() else None
    return Inputs(own, own, data=options.data)
