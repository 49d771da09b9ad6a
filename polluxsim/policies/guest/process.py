"""The process of a program. It reads messages from standard input, and answers through standard output.

Messages of the host are pickles, because the host is trusted; answers are JSON. Standard output is moved before the
program starts, so that what the program prints goes nowhere.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
from collections.abc import Callable, Mapping
from traceback import walk_tb
from typing import Any

import numpy as np

from polluxsim.common.errors import PolluxSimError
from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.decision import Decision
from polluxsim.policies.contract.policy import Policy, as_policy, traits_of
from polluxsim.policies.guest.answers import InvalidAnswerError, plain_decision, plain_reasons, plain_traits
from polluxsim.policies.guest.guards import PROGRAM, ForbiddenError, Guard, limit_resources, open_builtins
from polluxsim.policies.guest.source import CLASS
from polluxsim.policies.guest.views import ViewReceiver
from polluxsim.policies.tools import pools, reason_kinds  # noqa: F401  (loaded before files are closed)

SIZE = struct.Struct(">Q")  # number of bytes of a message


class Channel:
    """Both directions of the pipe to the host."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target

    def receive(self) -> Any:
        """Return the next message. If there are no more, because the host has ended, end this process."""
        (size,) = SIZE.unpack(self._read(SIZE.size))
        return pickle.loads(self._read(size))  # noqa: S301  (the host is trusted)

    def send(self, answer: Mapping[str, Any]) -> None:
        """Send an answer as JSON."""
        content = json.dumps(answer).encode()
        content = SIZE.pack(len(content)) + content
        while content:
            written = os.write(self._target, content)
            content = content[written:]

    def _read(self, size: int) -> bytes:
        """Return a number of bytes of the host; end the process if there are no more."""
        parts = []
        while size:
            part = os.read(self._source, size)
            if not part:
                # A program may have changed what Python does at its exit.
                os._exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class LoadedProgram:
    """A program that runs in this process, and the answers to the messages of the host.

    The methods `start`, `decide` and `explain` are named as the actions of messages.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._guard = Guard()
        self._receiver = ViewReceiver(self._fit)
        self._policy: Policy | None = None
        self._is_prepared = False  # whether the policy can decide about several GPU types
        self._rng: np.random.Generator | None = None
        self._decision: Decision | None = None

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Run the source of the program, unless the message has a trusted policy, and return its label and traits."""
        policy: Policy | None = message["policy"]
        if policy is None:
            self._guard.watches = True
            # The limits are for good, so modules that need files or memory are loaded before.
            limit_resources(message["memory"])
            kind = self._class_of(message["source"])
            with self._guard.watching():
                policy = as_policy(kind())
        # Traits and the label may be properties, which are code of the program.
        with self._guard.watching():
            traits = traits_of(policy)
            label = str(policy.label)
        self._policy = policy
        return {"label": label, "traits": plain_traits(traits)}

    def _class_of(self, source: str) -> Callable[..., Any]:
        """Run the source of the program, and return its class."""
        code = compile(source, PROGRAM, "exec", dont_inherit=True)
        names: dict[str, Any] = {"__builtins__": open_builtins(), "__name__": "program"}
        module = type(sys)("program")  # dataclasses look for the module of their class
        sys.modules["program"] = module
        module.__dict__.update(names)
        with self._guard.watching():
            exec(code, module.__dict__)
        kind: Callable[..., Any] = module.__dict__[CLASS]
        return kind

    def decide(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision about a view as plain values."""
        assert self._policy is not None
        if self._rng is None:
            self._rng = np.random.Generator(np.random.PCG64())
            self._rng.bit_generator.state = message["rng"]
        view = self._receiver.view(message["view"])
        # The first view tells the GPU types, which the process does not have before.
        if len(view.types) > 1 and not self._is_prepared:
            self._is_prepared = True
            self._policy = pools.prepared_for_types(self._policy)
        with self._guard.watching():
            answer = self._policy.allocate(view, self._rng)
            plain = plain_decision(answer)
        self._decision = answer if isinstance(answer, Decision) else None
        return {"decision": plain}

    def explain(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the reasons of the last decision for some jobs; none if it cannot explain itself."""
        if self._decision is None or self._decision.explain is None:
            return {"reasons": []}
        with self._guard.watching():
            return {"reasons": plain_reasons(self._decision.explain(message["jobs"]))}

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a message, or its error."""
        action: Callable[[Mapping[str, Any]], dict[str, Any]] = getattr(self, message["action"])
        try:
            answer = action(message)
        except BaseException as error:  # noqa: BLE001  (also SystemExit and MemoryError of the program)
            answer = _failure(error)
        # An answer after a violation does not count, even if the program caught the error.
        if self._guard.violation is not None:
            return {"error": self._guard.violation}
        return answer

    def _fit(self, one: JobId, other: JobId) -> bool:
        """Ask the host whether two jobs can share GPUs."""
        self._channel.send({"fit": [one, other]})
        return bool(self._channel.receive())


def _failure(error: BaseException) -> dict[str, Any]:
    """Return an error as an answer. It names the innermost line of the program."""
    line = None
    for frame, number in walk_tb(error.__traceback__):
        if frame.f_code.co_filename == PROGRAM:
            line = number  # later frames are further inside
    if isinstance(error, MemoryError):
        return {"memory": True, "line": line}
    if isinstance(error, (ForbiddenError, InvalidAnswerError, PolluxSimError)):
        problem = str(error)
    else:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {"error": problem, "line": line}


def main() -> None:
    """Answer messages until there are no more. Then the process ends."""
    # The pipe gets other numbers, so that code that prints or reads cannot disturb it.
    target = os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    source = os.dup(0)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    channel = Channel(source, target)
    program = LoadedProgram(channel)
    while True:
        channel.send(program.answer(channel.receive()))


if __name__ == "__main__":
    main()
