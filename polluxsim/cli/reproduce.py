"""`polluxsim reproduce`: runs what a table or figure needs, compares it with what was published, draws it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polluxsim.errors import InvalidConfigError
from polluxsim.look.console import console
from polluxsim.paper.batch import batch_of
from polluxsim.paper.experiment import names, read_experiment
from polluxsim.paper.inputs import Inputs
from polluxsim.paper.outcome import Request
from polluxsim.paper.runs import Place

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

ALL, LIST = "all", "list"
DIFFERS = 1
"""Exit status of --check where a published number is not met."""

NOT_MADE = 2
"""Exit status where a table or figure could not be made; the others are."""

GENERATED_SEEDS = 8
"""Generated workloads by default, as many as the paper's."""

MEASURED_SEEDS = 6
"""Runs of each published workload by default: the policy's search is random, and fewer runs have no interval."""


def reproduce(options: argparse.Namespace) -> int:
    """Reproduce the named tables and figures, each written as soon as its runs are finished.

    Returns
    -------
    int
        0; with --check, 1 if a published number is not met; 2 if one of several tables or figures could not be made.
    """
    wanted = [word for word in options.names if "=" not in word]
    if LIST in wanted:
        return _list()
    chosen = names() if ALL in wanted else list(dict.fromkeys(wanted))
    if not chosen:
        raise InvalidConfigError(f"no table or figure is named, allowed are {', '.join(names())} and {ALL}")
    experiments = [read_experiment(name) for name in chosen]
    request = _request(options, [word for word in options.names if "=" in word])
    request.inputs.load_profiles()
    batch = batch_of(experiments, request)
    console().print(f"on {request.inputs}", soft_wrap=True)
    batch.do(request)
    met, not_met = batch.counts[True], batch.counts[False]
    console().print(f"{met} of {met + not_met} published numbers are met; wrote {request.folder}")
    return NOT_MADE if batch.failures else DIFFERS if options.check and not_met else 0


def _list() -> int:
    for name in names():
        print(f"{name:12}{read_experiment(name).title}")
    return 0


def _request(options: argparse.Namespace, extra: Sequence[str]) -> Request:
    inputs = Inputs(options.profiles, options.workloads, options.jobs)
    default = MEASURED_SEEDS if inputs.is_measured else GENERATED_SEEDS
    seeds = default if options.seeds is None else options.seeds
    for name, value in (("--seeds", seeds), ("--most-seeds", options.most_seeds)):
        if value < 1:
            raise InvalidConfigError(f"{name} is {value}, allowed is a whole number ≥ 1")
    if options.until is not None and not options.until > 0:
        raise InvalidConfigError(f"--until is {options.until}, allowed is a number > 0, like 0.1 for ±10 %")
    if options.workers is not None and options.workers < 1:
        raise InvalidConfigError(f"--workers is {options.workers}, allowed is a whole number ≥ 1")
    place = Place(options.out / "runs", options.workers, tuple(word for word in extra if word.startswith("hydra")))
    own = tuple(word for word in extra if not word.startswith("hydra"))
    return Request(inputs, seeds, max(seeds, options.most_seeds), options.until, own, options.out, place)
