"""Formats of cluster logs by name, one module for each family of formats.

To add a format:

1. Add a module here, or extend the module of its family. A text table with one line for each job needs only a
   function `_parse(row)` that returns a `LogJob`, or `row.dropped("why this row is not a job with GPUs")`.
2. Read cells with `row.name`, `row.seconds`, `row.gpus`, `row.time`, `row.count`, `row.one_of`. They raise an error
   with the file, the line, the value and the requirement. `row.word` reads text that may be blank.
3. Define `MINE = TableFormat(name=..., citation=..., layout=TableLayout(columns), parse=_parse, clock=...)`. A JSON
   file with a list of objects is a `JsonFormat` with a function for one `JsonRow` (`kubernetes.py`, `philly.py`).
4. Name further columns in `extras`, in the order of `LogJob.extras`. Give each a type, a unit and a meaning in
   `EXTRA_COLUMNS` of `polluxsim.logs.trace_table`.
5. Put readable but strange values into `LogJob.oddities`, with one constant text for each kind. The report counts them.
6. Add the instance to `INSTANCES` below. A log of another kind is a subclass of `Format`.
7. Add a small sample to tests/logs/fixtures and a line to `SAMPLES` of tests/logs/log_samples.py. The tests for all
   formats (strictness, counting, fuzzing) then cover it. Add a kind of mutant to tests/test_mutants.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from polluxsim.common.values import OneOf, check

if TYPE_CHECKING:
    from polluxsim.logs.formats.base import Format

INSTANCES = {
    "philly-raw": "philly.PHILLY_RAW",
    "philly": "philly.PHILLY",
    "itp": "published.ITP",
    "helios": "published.HELIOS",
    "seren": "published.SEREN",
    "kalos": "published.KALOS",
    "pai2020": "alibaba.PAI2020",
    "openb2023": "alibaba.OPENB2023",
    "sia": "job_lists.SIA",
    "gavel": "job_lists.GAVEL",
    "tiresias": "job_lists.TIRESIAS",
    "slurm": "slurm.SLURM",
    "pbs": "pbs.PBS",
    "swf": "swf.SWF",
    "kueue": "kubernetes.KUEUE",
    "volcano": "kubernetes.VOLCANO",
    "pods": "pods.PODS",
    "table": "table.TABLE",
}
"""Module and constant of each format, by the name of the format."""


class _Formats(Mapping[str, Any]):
    """Formats by name. The module of a format is imported when the format is used."""

    def __getitem__(self, name: str) -> Any:
        # Imported here, because loading the modules of all formats takes long, and most commands need only one.
        module, _, constant = INSTANCES[name].partition(".")
        return getattr(import_module(f"{__name__}.{module}"), constant)

    def __iter__(self) -> Iterator[str]:
        return iter(INSTANCES)

    def __len__(self) -> int:
        return len(INSTANCES)


FORMATS = _Formats()


def find_format(name: str) -> Format:
    """Return the format with a name; raise InvalidConfigError if there is none."""
    check("the format", name, Annotated[str, OneOf(*FORMATS)])
    named_format: Format = FORMATS[name]
    return named_format
