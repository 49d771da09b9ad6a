"""Check the laws of `polluxsim check` for each shipped policy, in one run of each of many drawn worlds.

    python benchmarks/check_laws.py [--worlds 500] [--policies fifo quotas] [--first 0] [--kind drawn]
                                    [--set fair_sharing=true]

`check_worlds.py` makes several runs of each world and also looks for other faults. This script is for large draws. The
kinds of worlds are `drawn`, as `polluxsim check` draws them; `crowded`, in which many jobs of several queues, users and
priorities wait for few GPUs, without other events for a long time; and `short`, which are crowded worlds in which
several nodes are down for most of the time. In `packed` worlds, which are for policies that keep the shapes of jobs,
jobs request nodes. In `limited` worlds, which are for policies that obey limits, users, qualities of service and queues
have limits. `--set` gives a parameter of the policy a value in all worlds.

The script prints a line for each policy: the findings and the CPU time. Each finding follows with the number of its
world, and then the number of worlds with a finding of each law. The exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from time import process_time
from typing import Any

from check_worlds import SHIPPED
from omegaconf import OmegaConf

from polluxsim.checks.checking import made
from polluxsim.checks.driving import FoundError, run_policy
from polluxsim.checks.findings import Finding
from polluxsim.checks.laws import RunLaws
from polluxsim.checks.limited_worlds import limited
from polluxsim.checks.packed_worlds import packed
from polluxsim.checks.parameters import with_parameters
from polluxsim.checks.random_worlds import Allowed, random_world
from polluxsim.checks.worlds import World
from polluxsim.common.errors import PolluxSimError
from polluxsim.policies.contract.policy import traits_of
from polluxsim.run.named_policies import NamedPolicy, named_policy
from polluxsim.workloads.workload import Job

KINDS = ("drawn", "crowded", "short", "packed", "limited")
LONG = 30_000.0  # duration of an outage that lasts for most of a run [s]


def crowded(number: int, allowed: Allowed, *, is_short: bool = False) -> World:
    """Return a world of few GPUs for which many jobs wait. A number always gives the same world.

    If it is short of GPUs, all nodes but the first are down for most of the time.
    """
    rng = Random(f"crowded {number}")
    gpus = rng.randint(3, 12)
    first = rng.randint(gpus // 2 + 1, gpus)
    nodes = (first, gpus - first) if gpus > first else (first,)
    queues = ["a", "b", "c", "d"][: rng.randint(2, 4)]
    priorities = [0.0, 1.0, 2.0][: rng.randint(1, 3)]
    jobs: list[Job] = []
    for index in range(rng.randint(3, 9)):
        wanted = rng.randint(1, first if is_short or allowed.types else gpus)
        about: dict[str, Any] = {
            "queue": rng.choice(queues),
            "user": rng.choice(["ada", "bob", "eve"]),
            "priority": rng.choice(priorities),
        }
        time = rng.choice([0.0, 0.0, 130.0, 700.0])
        if allowed.rigid:
            jobs.append(Job.rigid(f"job-{index}", time, wanted, rng.choice([900.0, 1800.0, 3600.0]), **about))
        else:
            jobs.append(Job(f"job-{index}", time, rng.choice(["toy", "slow", "wide"]), wanted, 10 * wanted, **about))
    outages = tuple((node, 1.0, LONG) for node in range(1, len(nodes))) if is_short else ()
    return World(nodes, tuple(jobs), outages=outages)


def world_of(kind: str, number: int, guest: NamedPolicy, settings: Mapping[str, object]) -> World:
    """Return the world of a kind with a number, with drawn parameters of a policy and given settings."""
    allowed = Allowed.under(traits_of(guest.make()))
    if kind in ("drawn", "packed", "limited"):
        world = random_world(number, allowed)
    else:
        world = crowded(number, allowed, is_short=kind == "short")
    if kind == "packed":
        world = packed(world, number)
    if kind == "limited":
        world = limited(world, number)
    world = with_parameters(world, guest, number)
    return replace(world, parameters=tuple({**dict(world.parameters), **settings}.items()))


def findings_in(world: World, guest: NamedPolicy) -> Sequence[Finding]:
    """Return the findings of the laws in one run in a world."""
    policy = made(guest, world)
    laws = RunLaws(world, policy)
    try:
        run_policy(world, policy, laws=laws)
    except FoundError as error:
        return [error.finding]
    return list(laws.findings.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="number of the first world")
    parser.add_argument("--policies", nargs="*", default=SHIPPED, help="default: all shipped policies")
    parser.add_argument("--kind", choices=KINDS, default="drawn")
    parser.add_argument("--set", nargs="*", default=[], help="parameters of the policy, as NAME=VALUE")
    options = parser.parse_args()
    settings = OmegaConf.to_container(OmegaConf.from_dotlist(options.set))
    total = 0
    for name in options.policies:
        started, guest = process_time(), named_policy(name)
        first: dict[object, tuple[int, Finding]] = {}
        worlds = Counter[object]()
        refused = 0
        for number in range(options.first, options.first + options.worlds):
            world = world_of(options.kind, number, guest, settings)
            try:
                findings = findings_in(world, guest)
            except PolluxSimError:  # no job could start, or the policy refuses the world
                refused += 1
                continue
            for finding in findings:
                first.setdefault(finding.kind, (number, finding))
            worlds.update({finding.fault for finding in findings})
        total += len(first)
        print(
            f"{name:22} {len(first):2} findings, {process_time() - started:6.1f} s, {refused} worlds refused",
            flush=True,
        )
        for number, finding in first.values():
            count = worlds[finding.fault]
            print(f"    world {number} and {count - 1} more: {finding.fault}: {finding.message}", flush=True)
    print(f"{total} findings of {len(options.policies)} policies in {options.worlds} {options.kind} worlds each")
    sys.exit(total > 0)


if __name__ == "__main__":
    main()
