"""HiGHS writes nothing to standard output, whoever asks it; what others write there is kept."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, milp

from polluxsim.policies.sia.policy import Programme
from polluxsim.policies.sized.shockwave import Prospect, Window, planned_rounds
from polluxsim.policies.tools.solver_output import without_chatter

LINE = "HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n"


def badly_scaled() -> OptimizeResult:
    """Solve a programme whose answer HiGHS has to repair, when it prints its line."""
    rng = np.random.default_rng(0)
    n, m = int(rng.integers(5, 25)), int(rng.integers(3, 15))
    rows = rng.uniform(-1, 1, (m, n)) * 10.0 ** rng.integers(-3, 7, (m, n)) * (rng.random((m, n)) < 0.5)
    limits = rows @ rng.integers(0, 5, n)
    least = np.where(rng.random(m) < 0.3, limits, -np.inf)
    whole = (rng.random(n) < 0.6).astype(int)
    where = LinearConstraint(rows, least, limits)
    return milp(rng.uniform(-1, 1, n), integrality=whole, bounds=Bounds(0, 10), constraints=where)


def print_by_c(text: str) -> None:
    ctypes.CDLL(None).printf(b"%s", text.encode())


def test_the_line_of_highs_is_left_out_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    with without_chatter():
        found = badly_scaled()
        print_by_c("by C\n" + LINE)
        os.write(1, b"by a thread\n")
    print("by Python")
    assert sorted(capfd.readouterr().out.splitlines()) == ["by C", "by Python", "by a thread"]
    assert found.status == badly_scaled().status


def test_it_works_where_standard_output_is_closed(capfd: pytest.CaptureFixture[str]) -> None:
    kept = os.dup(1)
    os.close(1)
    try:
        with without_chatter():
            pass
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(1)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def test_an_error_meanwhile_puts_standard_output_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), without_chatter():
        print_by_c(LINE + "before\n")
        _ = 1 / 0
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "before\nafter\n"


def by_sia() -> object:
    """Two jobs want two of three GPUs each: without whole numbers, halves would be best."""
    worths = np.array([[1.0, 4.0], [1.0, 4.0]])
    sizes, none = np.array([1, 2]), np.array([-1, -1])
    return Programme(worths, sizes, np.array([0, 0]), np.array([3]), none, -0.5, 1.1).solve()


def by_shockwave() -> object:
    jobs = [Prospect(1, 10, 0, 0.0, 60.0, 600.0)] * 2
    return planned_rounds(jobs, [1.0, 1.0], [0, 0], Window(4, 120.0, 1, 1e-3))


@pytest.mark.parametrize("ask", [by_sia, by_shockwave])
def test_policies_ask_it_such_that_nothing_is_seen(
    ask: Callable[[], object], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def noisy(*args: Any, **options: Any) -> OptimizeResult:
        if np.any(options["integrality"]):
            asked.append(1)
            print_by_c(LINE)
        return milp(*args, **options)

    monkeypatch.setattr(scipy.optimize, "milp", noisy)
    ask()
    assert asked
    assert capfd.readouterr().out == ""
