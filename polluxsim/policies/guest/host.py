"""The host of a program: a policy that starts the process of a program, and asks it for decisions.

A message is a number of bytes and then a pickle; an answer is a number of bytes and then JSON. The process answers each
message once. Before it does, it may ask whether jobs fit together ("fit"), and the host answers that with a message.
After an error, the process is ended, because its state is unknown.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from polluxsim.hardware.placements import JobId
from polluxsim.policies.contract.decision import Decision, Traits
from polluxsim.policies.contract.policy import Policy
from polluxsim.policies.contract.reasons import Reason
from polluxsim.policies.contract.view import ClusterView
from polluxsim.policies.guest.answers import read_decision, read_reasons, read_traits
from polluxsim.policies.guest.faults import LateProgramError, ProcessLimits, ProgramError
from polluxsim.policies.guest.source import check_source
from polluxsim.policies.guest.views import ViewSender

SIZE = struct.Struct(">Q")  # number of bytes of a message
MOST_BYTES = 2**26  # size of the longest answer [bytes]
PATIENCE = 0.05  # longest time between two looks at the CPU time of the process [s]
MOST_WAITING = 10  # a decision may take this multiple of its limit while the process has no core

ANYTHING = frozenset(field.name for field in fields(Decision)) | frozenset(field.name for field in fields(Traits))
"""All parts of decisions and all traits, for policies that are trusted."""


@dataclass(frozen=True)
class Program:
    """A program, or a policy of polluxsim that runs like one."""

    source: str = ""
    policy: Policy | None = None  # trusted policy that takes the place of the source
    more: Collection[str] = ()  # further parts of decisions and traits that the program may use


class GuestPolicy(Policy):
    """A program in a process of its own, as a policy.

    Use it as a context manager; at the end of the block, the process is ended.

    Parameters
    ----------
    program
        The program. Its source is checked.
    hash_seed
        Seed of the hashes of texts in the process.
    limits
        What the process may use.
    until
        Time on the clock `time.monotonic` at which the program is ended [s].
    family
        List of the processes of a program that can be copied with `copy.deepcopy`, to which it adds itself; None for a
        program that is not copied. A copy is a new process, which answers all earlier messages again.

    Raises
    ------
    ProgramError
        If the program is refused, fails, gives an invalid answer, or exceeds a limit; also in all methods.
    """

    def __init__(
        self,
        program: Program,
        hash_seed: int = 0,
        limits: ProcessLimits | None = None,
        until: float = float("inf"),
        family: list[GuestPolicy] | None = None,
    ) -> None:
        self._program = program
        self._hash_seed = hash_seed
        self._family = family
        self._history: list[Mapping[str, Any]] = []  # messages about decisions, for copies
        self._limits = limits or ProcessLimits()
        self._until = until
        self._more = program.more
        self._sender = ViewSender()
        self._view: ClusterView | None = None  # of the present decision, about which the process may ask
        self._process: subprocess.Popen[bytes] | None = None
        self._label = "Candidate"
        self.num_decisions = 0
        self.seconds = 0.0  # wall-clock time of all decisions [s]
        if program.policy is None:
            check_source(program.source)
        self._start(hash_seed)
        message = {
            "action": "start",
            "source": program.source,
            "policy": program.policy,
            "memory": self._limits.memory,
        }
        # The family ends the process also if its start fails or is interrupted.
        if family is not None:
            family.append(self)
        try:
            answer = self._ask(message, self._limits.start, "start")
            self._label = str(answer["label"])
            self._traits = read_traits(answer["traits"], self._more)
        except BaseException:
            self.close()
            raise

    @property
    def traits(self) -> Traits:
        """Return the traits of the program."""
        return self._traits

    @property
    def label(self) -> str:
        """Return the label of the program, which is the name of its class unless it states one."""
        return self._label

    @property
    def decision_ms(self) -> float:
        """Return the mean time of a decision with the way through the pipe [ms]; 0 before the first."""
        return 1000 * self.seconds / max(self.num_decisions, 1)

    def allocate(self, view: ClusterView, rng: np.random.Generator) -> Decision:
        """Return the decision of the program. It has one generator, in the state of `rng` at the first decision."""
        started = perf_counter()
        self._view = view
        message: dict[str, Any] = {"action": "decide", "view": self._sender.message(view)}
        # The process then draws from a generator of its own, as this process would from `rng`.
        if not self.num_decisions:
            message["rng"] = rng.bit_generator.state
        answer = self._ask(message, self._limits.decision, f"decide in the round at {view.time:g} s")
        if self._family is not None:
            self._history.append(message)
        self.num_decisions += 1
        self.seconds += perf_counter() - started
        try:
            return read_decision(answer["decision"], self._explain, self._more)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise ProgramError("the program gave an answer that is no decision") from None

    def close(self) -> None:
        """End the process, and those that it started. A process that has ended already is no error."""
        process = self._process
        if process is None:
            return
        self._process = None
        # The process leads a session of its own, so that its group has no other processes.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> GuestPolicy:
        """Return the program in a new process with equal state. Raise TypeError if it has no family."""
        if self._family is None:
            raise TypeError("a program without a family cannot be copied")
        copy = GuestPolicy(self._program, self._hash_seed, self._limits, self._until, self._family)
        # A process cannot be copied, but equal messages and equal seeds bring a new one to an equal state.
        for message in self._history:
            copy._ask(message, self._limits.decision, "decide again")
        copy._history = list(self._history)
        copy._sender = deepcopy(self._sender, memo)
        copy._view = deepcopy(self._view, memo)
        copy.num_decisions = self.num_decisions
        return copy

    def __enter__(self) -> GuestPolicy:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, hash_seed: int) -> None:
        """Start the process, with none of the environment variables of this one."""
        package = Path(__file__).parents[3]
        paths = [str(package), *(path for path in sys.path if path)]
        environment = {
            "PYTHONHASHSEED": str(hash_seed % 2**32),
            "PYTHONPATH": os.pathsep.join(paths),
            "PYTHONDONTWRITEBYTECODE": "1",
            # Threads would use CPU time of other runs, and more memory than the limit of small programs has.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": "1",
        }
        command = [sys.executable, "-s", "-P", "-m", "polluxsim.policies.guest.process"]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )

    def _explain(self, jobs: Sequence[JobId]) -> Mapping[JobId, Reason]:
        """Return the reasons of the program for its last decision about some jobs."""
        answer = self._ask({"action": "explain", "jobs": list(jobs)}, self._limits.decision, "explain its decision")
        try:
            return read_reasons(answer["reasons"])
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ProgramError("the program gave reasons that cannot be read") from None

    def _ask(self, message: Mapping[str, Any], limit: float, action: str) -> dict[str, Any]:
        """Return the answer to a message; raise ProgramError if it is an error, or takes longer than the limit [s].

        `action` says in the message of the error what the program does not do in time.
        """
        self._send(message)
        while True:
            answer = self._receive(limit, action)
            if "fit" not in answer:
                break
            self._send(self._fit(answer["fit"]))
        if "error" in answer or "memory" in answer:
            self._fail(answer)
        return answer

    def _fail(self, answer: Mapping[str, Any]) -> NoReturn:
        """End the process, and raise the error of the program."""
        self.close()
        problem = str(answer.get("error"))
        if "memory" in answer:
            problem = f"the program needs more memory than its limit of {self._limits.memory_in_words}"
        line = answer.get("line")
        raise ProgramError(f"line {int(line)}: {problem}" if isinstance(line, int) else problem)

    def _fit(self, jobs: Any) -> bool:
        """Return whether two jobs, given by name, can share GPUs."""
        assert self._view is not None
        views = {job.job_id: job for job in self._view.jobs}
        fit_together = self._view.sharing.fit_together
        if fit_together is None:
            return False
        return fit_together(*(views[str(name)] for name in jobs))

    def _send(self, message: object) -> None:
        """Send a message to the process. Raise ProgramError if the process has ended."""
        if self._process is None or self._process.stdin is None:
            raise ProgramError("the process of the program has ended")
        content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        try:
            _write(self._process.stdin.fileno(), SIZE.pack(len(content)) + content)
        except OSError:
            self._ended()

    def _receive(self, limit: float, action: str) -> dict[str, Any]:
        """Return the next answer. Raise ProgramError if it is late, too long or no JSON object, or there is none."""
        until = _Deadline(self._process, limit, self._until)
        (size,) = SIZE.unpack(self._read(SIZE.size, until, action))
        # A program must not fill the memory of the host.
        if size > MOST_BYTES:
            self.close()
            raise ProgramError(f"the answer of the program has {size} bytes, must have at most {MOST_BYTES}")
        content = self._read(size, until, action)
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise ProgramError("the program gave an answer that cannot be read")
        return answer

    def _read(self, size: int, until: _Deadline, action: str) -> bytes:
        """Return a number of bytes from the process. Raise ProgramError if they are late, or the process has ended."""
        if self._process is None or self._process.stdout is None:
            raise ProgramError("the process of the program has ended")
        descriptor = self._process.stdout.fileno()
        parts = []
        while size:
            ready, _, _ = select.select([descriptor], [], [], PATIENCE)
            if not ready:
                exceeded = until.exceeded()
                if exceeded:
                    self.close()
                    raise LateProgramError(f"the program did not {action} within {exceeded}")
                continue
            part = os.read(descriptor, size)
            if not part:
                self._ended()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _ended(self) -> NoReturn:
        """Close what is left of the process, and raise the error that it has ended."""
        self.close()
        raise ProgramError("the program ended its process, or was ended by a limit; it must return its decisions")


class _Deadline:
    """Until when an answer must come. A process without a core gets more time, because others then use its core."""

    def __init__(self, process: subprocess.Popen[bytes] | None, limit: float, until: float) -> None:
        self._process = process
        self._limit = limit
        self._until = until
        self._started = monotonic()
        self._cpu_before = self._cpu_seconds()

    def exceeded(self) -> str:
        """Return the limit that is exceeded, in words, or an empty text."""
        now = monotonic()
        if now > self._until:
            return "the time of the stage"
        waited = now - self._started
        if waited <= self._limit:
            return ""
        used = self._cpu_seconds() - self._cpu_before
        # A process that sleeps uses no CPU time, so there is a limit of waiting, too.
        if used <= self._limit and waited <= MOST_WAITING * self._limit:
            return ""
        return f"its limit of {self._limit:g} s"

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the process so far [s]; the time of a clock if it is unknown.

        The difference of two such times is then the waited time, which limits the process as well.
        """
        if self._process is None:
            return monotonic()
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii", errors="replace")
            # The name of the process in parentheses may have spaces. Behind it, fields 12 and 13 are the time of the
            # process itself and that of the system for it, in ticks of the clock.
            values = stat.rpartition(")")[2].split()
            return (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError, IndexError):
            return monotonic()


def _write(descriptor: int, content: bytes) -> None:
    """Write all bytes. A pipe may take only some of them at once."""
    rest = memoryview(content)
    while rest:
        written = os.write(descriptor, rest)
        rest = rest[written:]
