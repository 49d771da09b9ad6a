"""`polluxsim trace`: a finished run as a timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polluxsim.errors import InvalidInputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

SUFFIXES = (".json", ".json.gz")


def add(parser: ArgumentParser) -> None:
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
    from polluxsim.files import appearing_whole
    from polluxsim.look.timeline import write_timeline
    from polluxsim.storage import read_run

    if options.output is not None and not options.output.name.endswith(SUFFIXES):
        raise InvalidInputError(f"{options.output}: allowed is the name of a file that ends in {' or '.join(SUFFIXES)}")
    run = read_run(options.run)
    path = options.output or Path(f"{run.name}.perfetto.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing_whole(path) as temporary:
        slices = write_timeline(run, temporary, packed=path.suffix == ".gz")
    print(f"wrote {path}: {slices} slices; open it at https://ui.perfetto.dev or in chrome://tracing")
