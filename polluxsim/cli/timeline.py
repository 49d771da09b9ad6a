"""`polluxsim trace`: a finished run as a timeline."""

from __future__ import annotations

from pathlib import Path

from polluxsim.errors import InvalidInputError
from polluxsim.files import appearing_whole
from polluxsim.look.timeline import write_timeline
from polluxsim.storage import read_run

SUFFIXES = (".json", ".json.gz")


def trace(folder: Path, output: Path | None) -> int:
    """Write a run's timeline, by default into the present folder under the run's name."""
    if output is not None and not output.name.endswith(SUFFIXES):
        raise InvalidInputError(f"{output}: allowed is the name of a file that ends in {' or '.join(SUFFIXES)}")
    run = read_run(folder)
    path = output or Path(f"{run.name}.perfetto.json.gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    with appearing_whole(path) as temporary:
        slices = write_timeline(run, temporary, packed=path.suffix == ".gz")
    print(f"wrote {path}: {slices} slices; open it at https://ui.perfetto.dev or in chrome://tracing")
    return 0
