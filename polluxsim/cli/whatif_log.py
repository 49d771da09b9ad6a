"""`polluxsim whatif sacct.txt`: a cluster's log as it was, and with other nodes, loads and policies, on one page."""

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


class Case(NamedTuple):
    """What is tried: a policy on so many nodes, with jobs that come so many times as fast as in the log."""

    policy: str
    nodes: int
    load: float


def whatif_log(options: Namespace) -> None:
    """Import a log, find the policy that explains its waits, replay it in every case, and print what changes them."""
    from polluxsim.folders import info_of
    from polluxsim.look.remarks import without_effect
    from polluxsim.run.overrides import split_list
    from polluxsim.sweeps.calibration import Candidates, calibrate

    policies, nodes, loads = split_list(options.policy), _nodes(options.nodes), _loads(options.load)
    folder = options.output or options.run.with_name(f"{options.run.stem}-whatif")
    log = _imported(options.run, folder)
    present = Candidates(policies, [nodes[0] * options.gpus_per_node], options.gpus_per_node)
    found, waits = calibrate(log, present, folder / "as-it-was", options.names)
    cases = [Case(*case) for case in product(policies, nodes, loads)]
    runs = dict(zip(cases, _replayed(log, present, cases, options.names, folder / "runs"), strict=True))
    waited = {case: _waits(run) for case, run in runs.items()}
    print(f"{len(waits)} jobs waited {length(waits.mean())} on average in the log; replayed on {nodes[0]} nodes: "
          + ", ".join(f"{match.policy} is off by {length(match.error)} a job" for match in found))  # fmt: skip
    _print(waited)
    print("\n".join(_sentences(Case(found[0].policy, nodes[0], loads[0]), waited)))
    for sentence in without_effect((case.policy, info_of(run)) for case, run in runs.items()):
        print(sentence)
    print(f"wrote {folder}")


def _imported(source: Path, folder: Path) -> Path:
    """Return a log as `polluxsim import` writes it, of one that is so already, or of sacct's."""
    from polluxsim.logs.importing import import_trace

    if source.suffix == ".parquet":
        return source
    folder.mkdir(parents=True, exist_ok=True)
    import_trace("slurm", source, folder / "log.parquet")
    return folder / "log.parquet"


def _nodes(text: str) -> list[int]:
    """Return sizes, of which those with a sign are counted from the first one.

    >>> _nodes("8,+4,-2")
    [8, 12, 6]
    """
    words = text.split(",")
    if not words[0].isdigit() or not all(word.lstrip("+-").isdigit() for word in words):
        raise InvalidConfigError(f"--nodes is {text!r}, allowed are the nodes there are, and others: 8,12 or 8,+4")
    first = int(words[0])
    return list(dict.fromkeys(first + int(word) if word[0] in "+-" else int(word) for word in words))


def _loads(text: str) -> list[float]:
    try:
        return list(dict.fromkeys(map(float, text.split(","))))
    except ValueError:
        raise InvalidConfigError(f"--load is {text!r}, allowed are numbers like 1,1.2") from None


def _replayed(log: Path, present: Candidates, cases: Sequence[Case], extra: Sequence[str], folder: Path) -> list[Path]:
    """Replay the log in every case, and return the runs."""
    from polluxsim.sweeps import run_sweep
    from polluxsim.sweeps.calibration import replay_of

    size = present.gpus_per_node
    most = f"workload.most_gpus={size * min(case.nodes for case in cases)}"
    same = (*replay_of(log), most, f"cluster.gpus_per_node={size}", *extra)
    plan = [
        (*same, f"policy={case.policy}", f"cluster.num_nodes={case.nodes}", f"workload.load_factor={case.load}")
        for case in cases
    ]
    return list(map(Path, run_sweep(plan, folder)["folder"]))


def _waits(run: Path) -> tuple[float, float]:
    """Return the mean and the 95 % quantile of the jobs' waits in a run [s]."""
    from polluxsim.metrics.target import read_target
    from polluxsim.storage import read_run

    result = read_run(run).result
    mean, high = (read_target(f"{what} wait < 1h").value(result) for what in ("mean", "p95"))
    return mean, high


def _print(waited: Mapping[Case, tuple[float, float]]) -> None:
    from rich.table import Table

    from polluxsim.look.console import console

    table = Table()
    for heading in ("policy", "nodes", "load", "mean wait", "p95 wait"):
        table.add_column(heading, justify="left" if heading == "policy" else "right")
    for case, times in waited.items():
        table.add_row(case.policy, str(case.nodes), f"{case.load:g}", *map(length, times))
    console().print(table)


def _sentences(base: Case, waited: Mapping[Case, tuple[float, float]]) -> Iterator[str]:
    """Yield what each single change does to the wait of the case that is nearest to the log."""
    before = waited[base][1]
    for case, (_, after) in waited.items():
        changed = [name for name in Case._fields if getattr(case, name) != getattr(base, name)]
        if len(changed) != 1:
            continue
        more = case.nodes - base.nodes
        what = {
            "nodes": f"{abs(more)} {'more' if more > 0 else 'fewer'} node{'' if abs(more) == 1 else 's'}",
            "load": f"{case.load / base.load:g} times the load",
            "policy": f"{case.policy} in place of {base.policy}",
        }[changed[0]]
        does = "leaves the p95 wait at" if after == before else f"{'cuts' if after < before else 'raises'} the p95 wait"
        yield f"{what}: {does} " + (length(after) if after == before else f"from {length(before)} to {length(after)}")
