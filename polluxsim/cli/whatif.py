"""`polluxsim whatif`: how a run would have gone on otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from polluxsim.durations import instant, length
from polluxsim.errors import InvalidConfigError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from polluxsim.api.choices import Choice

GROUPS = ("policy", "cluster")


def add(parser: ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.description = (
        "Go back to a time in a finished run, and let it go on in two ways: as it did, and with changes from then on. "
        "Keep both as runs, and compare them."
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    parser.add_argument("names", nargs="*", metavar="KEY=VALUE",
                        help="another policy or cluster, or a setting of the run's own: policy=tiresias, "
                        "policy.p=-10, cluster.num_nodes=20")  # fmt: skip
    parser.add_argument("--at", required=True, metavar="TIME", help="when: seconds since the start, 1.5h or H:MM:SS")
    parser.add_argument("--drop-node", type=int, action="append", default=[], metavar="N",
                        help="a node that goes down for good; may be given several times")  # fmt: skip
    parser.add_argument("--without", action="append", default=[], metavar="JOB",
                        help="a job that is cancelled, or does not come; may be given several times")  # fmt: skip
    parser.add_argument("--add", type=Path, metavar="FILE", help="a workload file of jobs that come besides")
    parser.add_argument("--seeds", type=int, default=1, metavar="N",
                        help="futures of each kind that chance draws differently (default: %(default)s)")  # fmt: skip
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="folder for the runs (default: RUN-at-TIME)")
    parser.set_defaults(action=_whatif)


def _whatif(options: Namespace) -> int:
    from polluxsim.api.results import read
    from polluxsim.look.comparing import as_text, compared
    from polluxsim.look.console import console
    from polluxsim.look.table import comparison

    changes = _changes(options)
    origin = read(options.run)
    moment = origin.at(instant(options.at))
    folder = options.output or options.run.with_name(
        f"{options.run.resolve().name}-at-{length(moment.time)}".replace(" ", "")
    )
    others, stayed = [], []
    for number in range(options.seeds):
        seed = {"seed": origin.info["seed"] + number} if number else {}
        ending = f"-seed{seed['seed']}" if seed else ""
        others.append(read(moment.fork(**changes, **seed).save(folder / f"otherwise{ending}")))
        stayed.append(read(moment.fork(**seed).save(folder / f"as-it-was{ending}")))
    first = {run.name: run.metrics for run in (stayed[0], others[0])}
    console().print(comparison({name: metrics for name, metrics in first.items() if metrics is not None}))
    print(as_text(compared([*others, *stayed])))
    print(f"wrote {folder}")
    return 0


def _changes(options: Namespace) -> Mapping[str, Any]:
    """Return what is to change, as `Moment.fork` takes it."""
    if options.seeds < 1:
        raise InvalidConfigError(f"--seeds is {options.seeds}, allowed is a whole number ≥ 1")
    changes = {
        **_chosen(options.names),
        "drop_nodes": options.drop_node,
        "without": options.without,
        "add": options.add,
    }
    if not any(changes.values()):
        raise InvalidConfigError("nothing is to change, needed is KEY=VALUE, --drop-node, --without or --add")
    return changes


def _chosen(overrides: list[str]) -> dict[str, Choice]:
    """Return the choices that overrides make: an entry of a group, or settings of what the run has."""
    from polluxsim.api.choices import Choice

    names: dict[str, str] = {}
    settings: dict[str, dict[str, Any]] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        group, _, name = key.partition(".")
        if group not in GROUPS or not equals:
            raise InvalidConfigError(f"{override!r} cannot change on the way, allowed are policy=…, policy.NAME=…, "
                                     "cluster=… and cluster.NAME=…")  # fmt: skip
        if name:
            settings.setdefault(group, {})[name] = yaml.safe_load(value)
        else:
            names[group] = value
    groups = dict.fromkeys([*names, *settings])
    return {group: Choice(group, names.get(group), settings.get(group, {})) for group in groups}
