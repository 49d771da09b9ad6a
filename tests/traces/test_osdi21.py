from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from toy import write_artifact

from polluxsim.errors import InvalidInputError, PolluxSimError
from polluxsim.models.measured import MeasuredProfile
from polluxsim.traces.osdi21 import read_profiles
from polluxsim.traces.store import ProfileFolder, write_store


def test_an_import_is_read_back_the_same(tmp_path: Path) -> None:
    source = write_artifact(tmp_path / "artifact")
    profiles = read_profiles(source)
    write_store(profiles, tmp_path / "store")
    assert ProfileFolder(str(tmp_path / "store")).load() == profiles
    assert ProfileFolder(str(source)).load() == profiles
    assert ProfileFolder(str(source / "traces")).load() == profiles


def test_all_measurements_are_read_back_the_same(tmp_path: Path, measured_profiles: dict[str, MeasuredProfile]) -> None:
    write_store(measured_profiles, tmp_path)
    assert ProfileFolder(str(tmp_path)).load() == measured_profiles
    assert sum(len(profile.placements) for profile in measured_profiles.values()) == 5542


def test_columns_have_units(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_store(read_profiles(write_artifact(tmp_path / "artifact")), tmp_path)
    schema = pq.read_schema(tmp_path / "placements.parquet")
    assert schema.field("step_time").metadata == {b"unit": b"s"}
    assert schema.field("atomic_batch_size").metadata == {b"unit": b"examples"}


@pytest.mark.parametrize(
    ("file", "line", "text", "message"),
    [
        ("placements.csv", 3, "1,64,nan,0.1", "line 3: column 'step_time' is 'nan', allowed is a finite number > 0"),
        ("placements.csv", 3, "1,64,0.1,0.2", "line 3: column 'sync_time' is '0.2', allowed is less than the step"),
        ("placements.csv", 3, "10,64,0.1,0.01", "line 3: column 'placement' is '10', allowed is the GPUs on each"),
        ("placements.csv", 3, "1,32,0.1,0.01", "line 3: .* was measured on an earlier line already"),
        ("placements.csv", 3, "1,64.5,0.1,0.01", "line 3: column 'local_bsz' is '64.5', allowed is a whole number"),
        ("placements.csv", 3, "1,64,0.1", "line 3: 3 fields, the header has 4"),
        (
            "scalability.csv",
            2,
            "6,5,32,0.1,0.01",
            "line 2: column 'num_replicas' is '5', allowed is a whole number ≥ 6",
        ),
        ("validation-128.csv", 4, "1,1,1,1,1", "line 4: column 'progress' is '1', allowed is a finite number > 200"),
        ("validation-128.csv", 4, "301,1,1,-1,1", "line 4: column 'grad_sqr' is '-1'"),
        ("validation-128.csv", 1, "a,b,c,d,e", "line 1: missing column 'progress', 'iteration', 'metric'"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, file: str, line: int, text: str, message: str) -> None:
    path = write_artifact(tmp_path) / "traces" / "cifar10" / file
    lines = path.read_text().splitlines()
    lines[line - 1] = text
    path.write_text("\n".join(lines))
    with pytest.raises(InvalidInputError, match=message) as caught:
        read_profiles(tmp_path)
    assert str(path) in str(caught.value)


def test_a_training_run_that_ends_too_early_is_named(tmp_path: Path) -> None:
    path = write_artifact(tmp_path) / "traces" / "cifar10" / "validation-512.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:50]))
    with pytest.raises(InvalidInputError, match="49 epochs, a job of this application needs 100"):
        read_profiles(tmp_path)


def test_a_folder_with_nothing_in_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no measured profiles"):
        read_profiles(tmp_path)
    with pytest.raises(InvalidInputError, match="no profiles there"):
        ProfileFolder(str(tmp_path)).load()


def test_an_application_that_is_not_known_is_named(tmp_path: Path) -> None:
    write_artifact(tmp_path)
    (tmp_path / "traces" / "ncf").rename(tmp_path / "traces" / "mine")
    with pytest.raises(InvalidInputError, match="mine: nothing is known of this application"):
        read_profiles(tmp_path)


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("placements", lambda t: t.assign(sync_time=1e9), "allowed is less than the step time"),
        ("placements", lambda t: t[t.application != "ncf"], "ncf has no step times"),
        (
            "placements",
            lambda t: pd.concat([t, t.head(1)]),
            "cifar10 has a placement and atomic batch size stands",
        ),
        ("validations", lambda t: t.assign(progress=5.0), "progress does not rise"),
        ("applications", lambda t: t.assign(max_batch_size=10**6), "outside what is in validations"),
        ("applications", lambda t: t.assign(min_atomic_batch_size=10**6), "allowed are rising limits"),
        ("applications", lambda t: pd.concat([t, t.head(1)]), "allowed is a name that stands once"),
    ],
)
def test_a_store_that_was_changed_by_hand_is_checked(
    tmp_path: Path, table: str, change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    write_store(read_profiles(write_artifact(tmp_path / "artifact")), tmp_path)
    path = tmp_path / f"{table}.parquet"
    change(pd.read_parquet(path)).to_parquet(path)
    with pytest.raises(PolluxSimError, match=message):
        ProfileFolder(str(tmp_path)).load()


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    write_store(read_profiles(write_artifact(tmp_path / "artifact")), tmp_path)
    (tmp_path / "validations.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(InvalidInputError, match=r"validations\.parquet: not a Parquet file"):
        ProfileFolder(str(tmp_path)).load()
