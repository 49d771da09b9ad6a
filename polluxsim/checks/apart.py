"""Check a policy in a separate process, because the policy may end the process or never return."""

from __future__ import annotations

import os
from multiprocessing import Pipe
from typing import TYPE_CHECKING

from polluxsim.checks.checking import found
from polluxsim.checks.findings import as_test
from polluxsim.errors import PolicyError, PolluxSimError
from polluxsim.run.interrupt import ending_at_once, ending_with
from polluxsim.run.named_policy import NamedPolicy, named_policy
from polluxsim.run.workers import begin_worker, fresh, starting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from multiprocessing.connection import Connection

BEGINS, FOUND, FAILED, DONE = range(4)
"""Kinds of messages from the other process."""


def found_apart(policy: str, worlds: int, timeout: float | None = None) -> Iterator[tuple[str, str] | int]:
    """Yield the number of each world that begins, and each finding as a sentence and a test.

    Raises
    ------
    PolluxSimError
        If the policy does not exist, or ends the process.
    """
    guest = named_policy(policy)  # here, as the other process does not know the user's folders of configurations
    receiver, sender = Pipe(duplex=False)
    process = fresh().Process(target=_work, args=(sender, dict(os.environ), guest, worlds, timeout))
    world = 0
    with ending_at_once(), ending_with(lambda: process.kill() if process.is_alive() else None):
        with starting():
            process.start()
        sender.close()
        while True:
            try:
                kind, told = receiver.recv()
            except EOFError:
                process.join()
                raise PolicyError(_ended(policy, process.exitcode, world, timeout)) from None
            if kind == FAILED:
                raise PolluxSimError(told)
            if kind == DONE:
                return
            world = told if kind == BEGINS else world
            yield told


def _ended(policy: str, status: int | None, world: int, timeout: float | None) -> str:
    or_hangs = "" if timeout is None else f", or could not be stopped after {timeout:g} s"
    where = f"polluxsim.checks.worlds.drawn({world}, …)"
    return f"policy {policy} ended the process with status {status}{or_hangs}, in world {world}: {where}"


def _work(
    sender: Connection, environment: Mapping[str, str], policy: NamedPolicy, worlds: int, timeout: float | None
) -> None:
    begin_worker(environment)
    try:
        for finding in found(policy, range(worlds), timeout, lambda number: sender.send((BEGINS, number))):
            sender.send((FOUND, (f"{finding.fault}: {finding.message}", as_test(finding, policy.name))))
        sender.send((DONE, None))
    except PolluxSimError as error:
        sender.send((FAILED, str(error)))
