"""A run's key: it changes with whatever a result may change with, and with nothing else."""

from __future__ import annotations

import os
import re
import sys
from copy import deepcopy
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pytest

from polluxsim.common.errors import InvalidConfigError
from polluxsim.records.storage import RUN_FILES
from polluxsim.run import identity
from polluxsim.run.identity import code_digest, key_of, library_versions

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = {"w.csv": "jobs", "measured/a.csv": "1", "measured/deep/b.csv": "2"}
CONFIG: dict[str, Any] = {
    "policy": {"_target_": "guest.Policy", "p": -1},
    "workload": {"path": "w.csv"},
    "profiles": {"path": "measured"},
    "seed": 0,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with data and a policy of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write(**FILES)
    write(**{"guest.py": "import guests_helper\nclass Policy: pass\n", "guests_helper.py": "x = 1\n"})
    return tmp_path


def write(**files: str) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def changed(group: str, **settings: object) -> dict[str, Any]:
    config = deepcopy(CONFIG)
    config[group] |= settings
    return config


CHANGES: dict[str, Callable[[], object]] = {
    "content of a file": lambda: write(**{"w.csv": "sboj"}),
    "content deep in a folder": lambda: write(**{"measured/deep/b.csv": "3"}),
    "content of a folder that a sweep works in": lambda: write(
        **{"measured/.lock": "", "measured/a.csv": "2", "measured/sweep.parquet": ""}
    ),
    "a new file in a folder that holds a run": lambda: write(**{"measured/run.json": "{}", "measured/c.csv": ""}),
    "a file named as a sweep's where there is none": lambda: write(**{"measured/sweep.parquet": ""}),
    "a new file in a folder": lambda: write(**{"measured/c.csv": ""}),
    "a file of another name": lambda: Path("measured/a.csv").rename("measured/z.csv"),
    "a file that is gone": lambda: Path("w.csv").unlink(),
    "the user's module": lambda: write(**{"guest.py": "import guests_helper\nclass Policy: x = 2\n"}),
    "what the user's module imports": lambda: write(**{"guests_helper.py": "x = 2\n"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_key_changes_with_what_a_run_reads(folder: Path, change: Callable[[], object]) -> None:
    before = key_of(CONFIG)
    change()
    assert key_of(CONFIG) != before


def test_a_run_that_is_replayed_is_data(folder: Path) -> None:
    """But not one that lies in a folder of profiles."""
    write(**{f"measured/{name}": "" for name in RUN_FILES})
    replay = changed("policy", path="measured")
    before, beside = key_of(replay), key_of(CONFIG)
    write(**{"measured/allocations.parquet": "other"})
    assert key_of(replay) != before
    assert key_of(CONFIG) == beside


HARMLESS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "a file touched": lambda: os.utime("w.csv", (0, 0)),
    "a run beside the data": lambda: write(**{"measured/out/run.json": "{}", "measured/out/jobs.parquet": ""}),
    "a sweep beside the data": lambda: write(**{"measured/sweep/.lock": "", "measured/sweep/sweep.parquet": ""}),
    "a sweep in the folder of the data": lambda: write(
        **{f"measured/{name}": "" for name in (".lock", "sweep.parquet", "sweep-timing.parquet", "multirun.yaml")},
        **{"measured/0-seed=0/run.json": "{}", "measured/0-seed=0/jobs.parquet": ""},
    ),
    "a run in the folder of the data": lambda: write(**{f"measured/{name}": "" for name in RUN_FILES}),
    "a run that is being written": lambda: write(
        **{"measured/0-seed=0/jobs.parquet": "", "measured/0-seed=0/.0-seed=0.12345678.tmp/run.json": "{}"}
    ),
    "a hidden file": lambda: write(**{"measured/.cache": ""}),
    "a module that is not imported": lambda: write(**{"other.py": ""}),
    "a folder that has a setting's name": lambda: Path("exact").mkdir(),
}


@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_the_key_stays_with_what_a_run_does_not_read(folder: Path, change: Callable[[], object]) -> None:
    before = key_of(CONFIG)
    change()
    assert key_of(CONFIG) == before


def test_the_key_changes_with_every_setting(folder: Path) -> None:
    configs = [CONFIG, CONFIG | {"seed": 1}, changed("policy", p=-2), changed("policy", more=None)]
    configs += [changed("policy", p=True), changed("policy", p="-1"), changed("policy", p=-1.5)]
    assert len({key_of(config) for config in configs}) == len(configs)


def test_a_number_may_be_written_in_two_ways(folder: Path) -> None:
    assert key_of(changed("policy", p=-1.0)) == key_of(CONFIG)
    assert key_of(dict(reversed(CONFIG.items()))) == key_of(CONFIG)


@pytest.mark.parametrize(
    ("room", "counts"),
    [
        ("engine/x.py", True),
        ("api/x.py", False),
        ("look/x.py", False),
        ("run/x.py", False),
        ("run/execution.py", True),
    ],
)
def test_the_key_changes_with_code_that_results_hang_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, room: str, counts: bool
) -> None:
    monkeypatch.setattr(identity, "PACKAGE", folder)
    digests = []
    for text in ("1", "2"):
        code_digest.cache_clear()
        write(**{room: text})
        digests.append(code_digest())
    code_digest.cache_clear()
    assert (digests[0] != digests[1]) is counts


def test_the_design_names_the_packages_that_the_key_leaves_out() -> None:
    root = Path(identity.__file__).parents[2]
    text = " ".join((root / "docs" / "design" / "run-keys.md").read_text(encoding="utf-8").split())
    said = re.search(r"the sources of all packages but (.*?), except that (.*?) count", text)
    assert said is not None
    packages, modules = (tuple(re.findall(r"`(.*?)`", part)) for part in said.groups())
    assert (packages, modules) == (identity.WITHOUT_INFLUENCE, identity.EXECUTING)
    assert all((identity.PACKAGE / name).exists() for name in (*packages, *modules))


def test_the_key_changes_with_a_librarys_version(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key_of(CONFIG)
    assert "numba" in library_versions()
    monkeypatch.setattr(identity, "library_versions", lambda: library_versions() | {"numba": "0"})
    assert key_of(CONFIG) != before


def test_a_package_of_the_users_counts_whole(folder: Path) -> None:
    write(**{"pack/__init__.py": "", "pack/inner/policy.py": "1"})
    config = changed("policy", _target_="pack.inner.policy.Policy")
    before = key_of(config)
    write(**{"pack/inner/policy.py": "2"})
    assert key_of(config) != before
    assert "pack" not in sys.modules


@pytest.mark.parametrize(("group", "setting"), [("policy", "_target_"), ("workload", "rule")])
def test_a_package_without_an_init_counts_whole(folder: Path, group: str, setting: str) -> None:
    write(**{"research/mine.py": "1", "research/inner/more.py": "1"})
    config = changed(group, **{setting: "research.mine.Guest"})
    keys = [key_of(config)]
    for file in ("research/mine.py", "research/inner/more.py"):
        write(**{file: "2"})
        keys.append(key_of(config))
    assert len(set(keys)) == 3


def test_a_package_without_an_init_that_is_imported_counts(folder: Path) -> None:
    write(**{"guest.py": "import research.mine", "research/mine.py": "1"})
    before = key_of(CONFIG)
    write(**{"research/mine.py": "2"})
    assert key_of(CONFIG) != before


def test_every_part_of_a_package_without_an_init_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder / "elsewhere")
    write(**{"research/mine.py": "1", "elsewhere/research/yours.py": "1"})
    config = changed("policy", _target_="research.mine.Policy")
    keys = [key_of(config)]
    for file in ("research/mine.py", "elsewhere/research/yours.py"):
        write(**{file: "2"})
        keys.append(key_of(config))
    assert len(set(keys)) == 3


@pytest.mark.parametrize("name", ["compiled", "pack/compiled", "pack/__init__"])
def test_a_compiled_module_of_the_users_counts(folder: Path, name: str) -> None:
    file = name + EXTENSION_SUFFIXES[0]
    write(**{file: "1"})
    config = changed("policy", _target_=f"{name.partition('/')[0]}.Policy")
    before = key_of(config)
    write(**{file: "2"})
    assert key_of(config) != before


def test_the_code_of_a_script_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__main__")
    script.__spec__, script.__file__ = None, "script"
    monkeypatch.setitem(sys.modules, "__main__", script)
    config = changed("policy", _target_="__main__.Policy")
    write(script="1")
    before = key_of(config)
    write(script="2")
    assert key_of(config) != before


def test_code_that_cannot_be_read_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ZipFile("packed.zip", "w") as archive:
        archive.writestr("packed.py", "class Policy: pass")
    monkeypatch.syspath_prepend(folder / "packed.zip")
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))  # as in a notebook
    for name in ("packed", "__main__"):
        with pytest.raises(InvalidConfigError, match=f"{name}: .* no file"):
            key_of(changed("policy", _target_=f"{name}.Policy"))
    write(**{"guest.py": "import packed, math, builtins, __main__"})
    assert key_of(CONFIG)  # what lies elsewhere does not count
    assert key_of(changed("policy", _target_="builtins.dict"))  # Python's version does


@pytest.mark.parametrize("target", ["", "nowhere.Policy", "...", "__main__.Policy"])
def test_a_target_that_is_not_there_has_a_key(folder: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__file__ = __file__  # a process that runs tests for another has none
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert key_of(changed("policy", _target_=target)) != key_of(CONFIG)


def test_a_mapping_rule_of_the_users_counts(folder: Path) -> None:
    config = changed("workload", rule="rules.Mine")
    write(**{"rules.py": "class Mine: pass\n"})
    before = key_of(config)
    write(**{"rules.py": "class Mine: x = 2\n"})
    assert key_of(config) != before


def test_links_to_the_folder_itself_do_not_lead_round_in_circles(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / "measured" / name).symlink_to(".")
        (folder / "measured" / "deep" / name).symlink_to("..")
    before = key_of(CONFIG)
    write(**{"elsewhere/c.csv": "1"})
    (folder / "measured" / "linked").symlink_to(folder / "elsewhere")
    linked = key_of(CONFIG)
    write(**{"elsewhere/c.csv": "2"})
    assert len({before, linked, key_of(CONFIG)}) == 3


def test_pythons_own_modules_are_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_imported_modules", lambda path: pytest.fail(str(path)))
    assert key_of(changed("policy", _target_="types.SimpleNamespace"))


def test_installed_packages_are_not_listed_and_each_module_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that imports NumPy would else take seconds to recognise."""
    write(**{"a.py": "import b, numpy, pandas\nclass P: ...\n", "b.py": "import a, c, numpy\n", "c.py": "import b\n"})
    listed, read = [], []
    code, imported = identity._code_files, identity._imported_modules
    monkeypatch.setattr(identity, "_code_files", lambda place: (listed.append(place), code(place))[1])
    monkeypatch.setattr(identity, "_imported_modules", lambda path: (read.append(path.name), imported(path))[1])
    before = key_of(changed("policy", _target_="a.P"))
    assert listed == []
    assert sorted(read) == ["a.py", "b.py", "c.py"]
    write(**{"c.py": "import b\nx = 1\n"})
    assert key_of(changed("policy", _target_="a.P")) != before


def test_that_a_large_folder_is_being_read_is_said_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with (folder / "measured" / "large").open("wb") as file:
        file.truncate(identity.LARGE)  # takes no room on the disk
    read = identity.file_digest
    said: list[str] = []

    def digest(path: Path) -> str:
        said.append(capsys.readouterr().err)
        return "" if path.name == "large" else read(path)

    monkeypatch.setattr(identity, "file_digest", digest)
    for _ in range(2):
        key_of(CONFIG)
    lines = "".join(said)
    assert lines == "polluxsim: measured: reading 0.5 GB in 3 files, because the key of a run depends on its data\n"
    assert lines in said[: said.index(lines) + 1]


@pytest.mark.parametrize("text", ["", "x" * 300, "a\0b"])
def test_text_that_cannot_be_the_name_of_a_file_is_no_data(text: str) -> None:
    """The current folder may have any size: an empty path must not make its content part of the key."""
    assert identity.data_of({"workload": {"path": text}}) == {}
