"""Measure how many small faults in the code the default tier of tests notices.

Places for faults are drawn from the functions of some packages: a comparison, an operator, a constant, a condition, a
call whose result is not used. Each fault is put into the loaded functions of a new process, forked from one that has
imported everything and has run each test once. That process runs the tests that call the function, the shortest first,
until one fails. It uses the default-tier tests of these packages and of a few related ones. Compiled kernels are left
out, because machine code cannot be changed in place.

    python benchmarks/mutation.py --count 300 --seed 0 > mutants.csv

`--part 1/2` and `--part 2/2` take half of the same faults each, for two processes at once.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import gc
import os
import random
import resource
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from functools import _lru_cache_wrapper
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[1]
ROOMS = ("engine", "policies", "metrics", "workloads")
BESIDE = ("agent", "api", "models", "run")
"""Packages whose tests also cover these."""

COMPILED = {"kernel", "kernel_in_threads", "helper", "inlined", "spliced"}
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
WAIT = 8
"""Wall-clock time after which the tests of one fault are given up, over their limit of processor time."""
NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}


class Site(NamedTuple):
    """A place for a fault: its room, file, function and the first line of that, and the node's number in the file."""

    room: str
    path: Path
    function: str
    line: int
    node: int


def mutated(node: ast.AST) -> bool:
    """Put a fault into a node; return whether there is one to put."""
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in SWAPPED:
            node.ops = [SWAPPED[type(operator)]()]
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in SWAPPED:
            node.op = SWAPPED[type(operator)]()
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            node.test = ast.UnaryOp(ast.Not(), test)
        case ast.Constant(value=bool(value)):
            node.value = not value
        case ast.Constant(value=int() | float() as value):
            node.value = value + 1
        case ast.Call(func=ast.Name(id=name)) if name in NAMES:
            node.func.id = NAMES[name]
        case ast.Expr(value=ast.Call()):
            node.value = ast.Constant(None)
        case ast.Return(value=ast.Name() | ast.Call() | ast.Attribute()):
            node.value = ast.Constant(None)
        case _:
            return False
    return True


def sites(room: str) -> Iterator[Site]:
    """Yield all places for faults in a room."""
    for path in sorted((ROOT / "polluxsim" / room).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        numbers = {id(node): number for number, node in enumerate(ast.walk(tree))}
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and not _is_compiled(function):
                first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
                for node in _inside(function):
                    if mutated(copy.deepcopy(node)):
                        yield Site(room, path, function.name, first, numbers[id(node)])


def _is_compiled(function: ast.FunctionDef) -> bool:
    names = {node.id for each in function.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)}
    return bool(names & COMPILED)


def _inside(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body; not of functions within it, annotations, errors' words, zips' guards."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Raise | ast.JoinedStr):
            continue
        if isinstance(node, ast.keyword) and node.arg == "strict":
            continue
        yield node
        left += [child for name, child in _children(node) if name != "annotation"]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for name, value in ast.iter_fields(node):
        yield from (
            (name, each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST)
        )


def put_in(site: Site) -> str:
    """Put a fault into the functions of this process; return the line that it is in, with it."""
    tree = ast.parse(site.path.read_text(encoding="utf-8"))
    node = next(node for number, node in enumerate(ast.walk(tree)) if number == site.node)
    line = getattr(node, "lineno", 0)
    mutated(node)
    code = compile(ast.fix_missing_locations(tree), str(site.path), "exec")
    new = {(each.co_qualname, each.co_firstlineno): each for each in _codes(code)}
    gc.unfreeze()  # the tests freeze what they loaded, and frozen objects are not listed
    for function in gc.get_objects():
        if isinstance(function, FunctionType) and function.__code__.co_filename == str(site.path):
            own = new.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if own is not None and own != function.__code__:
                with suppress(ValueError):  # closes over other names by the fault
                    function.__code__ = own
    return f"{line}: {ast.unparse(node)[:100]}"


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes(each)


def forget() -> None:
    """Empty the caches of functions, else a test may be answered from before the fault."""
    for name, module in sys.modules.items():
        if name.startswith("polluxsim"):
            for each in vars(module).values():
                if isinstance(each, _lru_cache_wrapper):
                    each.cache_clear()


class Outside:
    """Stands for a next test of which nothing is known, so that only what the whole session shares is kept."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[Any]:
        return [self._session]


class Bench:
    """Runs in place of pytest's own loop, when the tests are collected."""

    def __init__(self, chosen: Sequence[Site], limit: int) -> None:
        self._chosen, self._limit = chosen, limit
        self._callers: dict[tuple[str, int], list[tuple[float, pytest.Item]]] = defaultdict(list)
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for site in self._chosen:
            import_module(".".join(site.path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        for item in session.items:
            self._survey(item)
        rows = csv.writer(sys.__stdout__)
        rows.writerow(("outcome", "file", "function", "fault", "tests"))
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for site in self._chosen:
            callers = self._callers[str(site.path), site.line]
            tests = [item for _, item in sorted(callers, key=lambda pair: pair[0])]
            how, what = self._outcome(site, tests)
            found[site.room][how] += 1
            rows.writerow((how, site.path.relative_to(ROOT), site.function, what, len(tests)))
            sys.__stdout__.flush()
        for room, counts in found.items():
            print(f"{room}: {dict(counts)} of {counts.total()}", file=sys.__stderr__)
        return True

    def _run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=Outside(item.session))

    def _survey(self, item: pytest.Item) -> None:
        """Run a test once, and note which functions it calls and how long it takes."""
        called = set[tuple[str, int]]()

        def note(frame: Any, event: str, _: object) -> None:
            if event == "call":
                called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

        forget()
        started = time.process_time()
        sys.setprofile(note)
        try:
            self._run(item)
        finally:
            sys.setprofile(None)
        if self._failed:  # as what waits for a signal may while it is watched
            print(f"fails without a fault and is left out: {item.nodeid}", file=sys.__stderr__)
            self._failed = False
            return
        for function in called:
            self._callers[function].append((time.process_time() - started, item))

    def _outcome(self, site: Site, tests: Sequence[pytest.Item]) -> tuple[str, str]:
        """Return whether tests notice a fault ("killed", "slow" or "survived"), and the fault."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            os.setsid()
            os.write(writing, put_in(site).encode())
            os.close(writing)
            resource.setrlimit(resource.RLIMIT_CPU, (self._limit, self._limit))
            os._exit(self._notice(tests))
        os.close(writing)
        with os.fdopen(reading, encoding="utf-8") as told:
            what = told.read()
        deadline = time.monotonic() + WAIT * self._limit
        while time.monotonic() < deadline:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return "slow" if os.WIFSIGNALED(status) else "killed" if status else "survived", what
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "slow", what

    def _notice(self, tests: Sequence[pytest.Item]) -> int:
        for item in tests:
            forget()
            self._run(item)
            if self._failed:
                return 1
        return 0


def main() -> None:
    """Draw faults, run tests on each, and print a row for each fault and a line for each package."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=300, help="faults drawn in all rooms together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=120, help="seconds of processor time for the tests of one fault")
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--part", default="1/1", help="take every n-th fault, from the i-th on: i/n")
    options = parser.parse_args()
    os.chdir(ROOT)
    first, step = map(int, options.part.split("/"))
    drawn = random.Random(options.seed).sample([site for room in options.rooms for site in sites(room)], options.count)
    chosen = drawn[first - 1 :: step]
    arguments = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-seed=0"]
    folders = [f"{top}/{room}" for top in ("tests", "polluxsim") for room in options.rooms]
    beside = [f"tests/{room}" for room in BESIDE]
    pytest.main([*arguments, *folders, *beside], plugins=[Bench(chosen, options.limit)])


if __name__ == "__main__":
    main()
