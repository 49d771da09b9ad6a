"""Code of the user that damages the process is reported in one line, and the process is repaired."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polluxsim.common import process_state
from polluxsim.common.errors import PolicyError
from polluxsim.common.process_state import ClosedFilesError, undamaged


def clear_modules() -> None:
    sys.modules.clear()


def lower_limit() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() - 300)


DAMAGES = [(clear_modules, "from sys.modules"), (lower_limit, "recursion limit")]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
@pytest.mark.parametrize("raises", [False, True])
def test_damage_is_named_and_repaired(damage: Callable[[], None], words: str, raises: bool) -> None:
    modules, limit = dict(sys.modules), sys.getrecursionlimit()
    with pytest.raises(PolicyError, match=words), undamaged():
        damage()
        if raises:
            raise KeyError("a consequence")
    assert sys.getrecursionlimit() == limit
    assert all(sys.modules[name] is module for name, module in modules.items())


def test_other_errors_and_harmless_changes_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Path.cwd()
    with undamaged():
        os.chdir(tmp_path)
        sys.modules["of_the_user"] = sys
        del sys.modules["of_the_user"]
    assert Path.cwd() == before
    with pytest.raises(KeyError), undamaged():
        raise KeyError
    limit = sys.getrecursionlimit()
    monkeypatch.setattr(sys, "getrecursionlimit", sys.getrecursionlimit)
    with undamaged():
        sys.setrecursionlimit(limit + 1000)
    sys.setrecursionlimit(limit)


@pytest.mark.parametrize("is_own", [False, True])
def test_files_count_only_in_a_process_of_polluxsim(monkeypatch: pytest.MonkeyPatch, is_own: bool) -> None:
    monkeypatch.setattr(process_state, "_is_own_process", [is_own])
    descriptor = os.open(os.devnull, os.O_RDONLY)
    if is_own:
        with pytest.raises(ClosedFilesError, match=f"closed descriptor {descriptor}") as caught, undamaged():
            os.close(descriptor)
        assert caught.value.cuts_off
    else:
        with undamaged():
            os.close(descriptor)
