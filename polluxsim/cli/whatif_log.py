"""`polluxsim whatif LOG`: replay a log unchanged, and with other nodes, loads, policies and failures."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from polluxsim.durations import length
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from polluxsim.sweeps.calibration import Candidates

PERCENTILES = ("p50", "p90", "p95", "p99")

OFF, ON = "off", "on"
ON_RATE = "rsc-1"
"""The entry of cluster/failures that `--failures on` takes."""


class Case(NamedTuple):
    """One replay."""

    policy: str
    nodes: int
    load: float  # jobs arrive this many times as fast as in the log
    failures: str  # an entry of cluster/failures, or `off`


def whatif_log(options: Namespace) -> None:
    """Import a log, find the policy that explains its waits, replay it in every case, and print what changes them."""
    from polluxsim.folders import info_of
    from polluxsim.look.remarks import engine_waits, without_effect
    from polluxsim.run.overrides import split_list
    from polluxsim.sweeps.calibration import Candidates, calibrate

    policies, nodes, loads = split_list(options.policy), _nodes(options.nodes), _loads(options.load)
    failures, percentiles = _failures(options.failures), _percentiles(options.percentile)
    folder = options.output or options.run.with_name(f"{options.run.stem}-whatif")
    log = _imported(options.run, folder)
    present = Candidates(policies, [nodes[0] * options.gpus_per_node], options.gpus_per_node)
    found, waits = calibrate(log, present, folder / "as-it-was", _without_failures(options.names))
    cases = [Case(*case) for case in product(policies, nodes, loads, failures)]
    runs = dict(zip(cases, _replayed(log, present, cases, options.names, folder / "runs"), strict=True))
    waited = {case: _waits(run, percentiles) for case, run in runs.items()}
    print(f"{len(waits)} jobs waited {length(waits.mean())} on average in the log; replayed on {nodes[0]} nodes: "
          + ", ".join(f"{match.policy} is off by {length(match.error)} a job" for match in found))  # fmt: skip
    _print(waited, percentiles, failures)
    print("\n".join(_sentences(Case(found[0].policy, nodes[0], loads[0], failures[0]), waited, percentiles[0])))
    print("\n".join([*_not_monotone(waited, percentiles[0]), engine_waits(found[0].engine)]))
    for sentence in without_effect((case.policy, info_of(run)) for case, run in runs.items()):
        print(sentence)
    print(f"wrote {folder}")


def _imported(source: Path, folder: Path) -> Path:
    """Return a log as `polluxsim import` writes it; output of sacct is imported first."""
    from polluxsim.logs.importing import import_trace

    if source.suffix == ".parquet":
        return source
    folder.mkdir(parents=True, exist_ok=True)
    import_trace("slurm", source, folder / "log.parquet")
    return folder / "log.parquet"


def _nodes(text: str) -> list[int]:
    """Return numbers of nodes; those with a sign are relative to the first one.

    >>> _nodes("8,+4,-2")
    [8, 12, 6]
    """
    words = text.split(",")
    if not words[0].isdigit() or not all(word.lstrip("+-").isdigit() for word in words):
        raise InvalidConfigError(f"--nodes is {text!r}; give the existing nodes, then others to try: 8,12 or 8,+4")
    first = int(words[0])
    return list(dict.fromkeys(first + int(word) if word[0] in "+-" else int(word) for word in words))


def _loads(text: str) -> list[float]:
    try:
        return list(dict.fromkeys(map(float, text.split(","))))
    except ValueError:
        raise InvalidConfigError(f"--load is {text!r}; give numbers like 1,1.2") from None


def _failures(text: str) -> list[str]:
    """Return entries of cluster/failures, or `off`.

    >>> _failures("off,on")
    ['off', 'rsc-1']
    """
    return list(dict.fromkeys(ON_RATE if word == ON else word for word in text.split(",")))


def _percentiles(text: str) -> list[str]:
    words = list(dict.fromkeys(text.split(",")))
    if wrong := [word for word in words if word not in PERCENTILES]:
        raise InvalidConfigError(f"--percentile is {text!r}: {wrong[0]!r} is none of {', '.join(PERCENTILES)}")
    return words


def _without_failures(names: Sequence[str]) -> list[str]:
    """Return the overrides of replays in which no node fails."""
    return [name for name in names if not name.startswith(("cluster.failures.", "cluster/repairs", "cluster.repairs"))]


def _replayed(log: Path, present: Candidates, cases: Sequence[Case], extra: Sequence[str], folder: Path) -> list[Path]:
    """Replay the log in every case, and return the runs."""
    from polluxsim.sweeps import run_sweep
    from polluxsim.sweeps.calibration import replay_of

    size = present.gpus_per_node
    most = f"workload.most_gpus={size * min(case.nodes for case in cases)}"
    same = (*replay_of(log), most, f"cluster.gpus_per_node={size}")
    plan = [
        (*same, f"policy={case.policy}", f"cluster.num_nodes={case.nodes}", f"workload.load_factor={case.load}",
         *(_without_failures(extra) if case.failures == OFF else [f"cluster/failures={case.failures}", *extra]))
        for case in cases
    ]  # fmt: skip
    return list(map(Path, run_sweep(plan, folder)["folder"]))


def _waits(run: Path, percentiles: Sequence[str]) -> tuple[float, ...]:
    """Return the mean and the percentiles of the jobs' waits in a run [s]."""
    from polluxsim.metrics.target import read_target
    from polluxsim.storage import read_run

    result = read_run(run).result
    return tuple(read_target(f"{what} wait < 1h").value(result) for what in ("mean", *percentiles))


def _print(waited: Mapping[Case, Sequence[float]], percentiles: Sequence[str], failures: Sequence[str]) -> None:
    from rich.table import Table

    from polluxsim.look.console import console

    table, has_failures = Table(), failures != [OFF]
    for heading in ("policy", "nodes", "load", *["failures"] * has_failures,
                    *(f"{what} wait" for what in ("mean", *percentiles))):  # fmt: skip
        table.add_column(heading, justify="left" if heading in ("policy", "failures") else "right")
    for case, times in waited.items():
        words = (case.policy, str(case.nodes), f"{case.load:g}", *[case.failures] * has_failures)
        table.add_row(*words, *map(length, times))
    console().print(table)


def _sentences(base: Case, waited: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield the effect of each single change on a percentile of the wait in the case that is nearest to the log."""
    before = waited[base][1]
    for case, (_, after, *_) in waited.items():
        changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
        if len(changed) != 1:
            continue
        more = case.nodes - base.nodes
        what = {
            "nodes": f"{abs(more)} {'more' if more > 0 else 'fewer'} node{'' if abs(more) == 1 else 's'}",
            "load": f"{case.load / base.load:g} times the load",
            "policy": f"{case.policy} in place of {base.policy}",
            "failures": "no failures" if case.failures == OFF else f"failures as in {case.failures}",
        }[changed[0]]
        if after == before:
            yield f"{what}: leaves the {percentile} wait at {length(after)}"
        else:
            does = "cuts" if after < before else "raises"
            yield f"{what}: {does} the {percentile} wait from {length(before)} to {length(after)}"


def _not_monotone(waited: Mapping[Case, Sequence[float]], percentile: str) -> Iterator[str]:
    """Yield a line for each case that is worse than the next one with fewer nodes, or with a higher load."""
    from polluxsim.sweeps.sizing import reversals

    for axis, is_easier_upwards in (("nodes", True), ("load", False)):
        curves: dict[Case, dict[float, float]] = {}
        for case, times in waited.items():
            rest = case._replace(nodes=0) if axis == "nodes" else case._replace(load=0)
            curves.setdefault(rest, {})[getattr(case, axis)] = times[1]
        for rest, curve in curves.items():
            same = f"load {rest.load:g}" if axis == "nodes" else f"{rest.nodes} nodes"
            for levels in reversals(curve, easier_upwards=is_easier_upwards).items():
                easier, harder = (
                    f"{length(curve[level])} with {f'{level:g} nodes' if axis == 'nodes' else f'load {level:g}'}"
                    for level in levels
                )
                yield f"not monotone: {rest.policy}, {same}: the {percentile} wait is {easier} and {harder}"
