"""Reading an output of `sacctmgr dump`."""

from __future__ import annotations

from pathlib import Path

import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.live.account_dump import AccountDump, read_dump
from polluxsim.policies.slurm.accounts import LIMITS_OF_ACCOUNT, read_accounts

ALL_LIMITS = "GrpTRES=gres/gpu=8,cpu=64,mem=2G,node=2:GrpJobs=9:MaxTRESPerJob=gres/gpu=4:MaxJobs=3"


def dump_of(tmp_path: Path, *lines: str) -> AccountDump:
    """Return what a dump with these lines states."""
    path = tmp_path / "dump.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_dump(path)


def unused_of(dump: AccountDump) -> list[tuple[int, str]]:
    """Return the numbers and texts of what is not used."""
    return [(line.number, line.text) for line in dump.unused]


def test_an_account_has_all_limits_of_the_policy(tmp_path: Path) -> None:
    dump = dump_of(tmp_path, "Parent - 'root'", f"Account - 'lab':{ALL_LIMITS}")
    assert dump.accounts == {
        "lab": {
            "GrpTRES": {"gpu": 8, "cpu": 64, "mem": 2048, "node": 2},
            "GrpJobs": 9,
            "MaxTRES": {"gpu": 4},
            "MaxJobs": 3,
        }
    }
    assert set(dump.accounts["lab"]) == set(LIMITS_OF_ACCOUNT)
    assert dump.unused == []
    assert "lab" in read_accounts(dump.accounts).by_name


def test_quoted_text_may_have_colons_quotes_and_number_signs(tmp_path: Path) -> None:
    dump = dump_of(
        tmp_path,
        "# Account - 'x'",
        "",
        "Account - 'lab':Description='a: Ada's #1, MaxJobs=9':Organization=\"b:c\":Fairshare=4  # since May",
        "Account - old:Description='d':MaxJobs=2",
    )
    assert dump.accounts == {"lab": {"fairshare": 4}, "old": {"MaxJobs": 2}}
    # Texts have no effect on jobs, so that each is listed once.
    assert unused_of(dump) == [(3, "Description (on 2 lines)"), (3, "Organization (on 1 line)")]


def test_options_that_the_policy_does_not_have_are_listed(tmp_path: Path) -> None:
    dump = dump_of(
        tmp_path,
        "Cluster - 'site':GrpTRES=gres/gpu=9",
        "Parent - 'root'",
        "User - 'root':DefaultAccount='root'",
        "Account - 'lab':Fairshare=parent:GrpTRES=gres/gpu:h100=8,cpu=-1,gres/gpu=2G,node=4:MaxJobs=0:QOS='a:b'",
        "Account - 'lab':MaxJobs=3",
        "Parent - 'lab'",
        "User - 'ada':Fairshare=5:MaxTRESPU=gres/gpu=2",
        "User - 'ada':Partition='gpu':Fairshare=6",
    )
    assert dump.accounts == {"lab": {"GrpTRES": {"node": 4}, "users": {"ada": 5}}}
    assert unused_of(dump) == [
        (1, "Cluster - 'site':GrpTRES=gres/gpu=9"),
        (3, "User - 'root':DefaultAccount='root'"),
        (
            4,
            "account lab: Fairshare=parent:GrpTRES=gres/gpu:h100=8,cpu=-1,gres/gpu=2G:MaxJobs=0:QOS='a:b'",
        ),
        (5, "Account - 'lab':MaxJobs=3"),
        (7, "user ada: MaxTRESPU=gres/gpu=2"),
        (8, "User - 'ada':Partition='gpu':Fairshare=6"),
    ]


def test_a_user_of_several_accounts_belongs_to_the_default_account(tmp_path: Path) -> None:
    lines = ["Account - 'a'", "Account - 'b'", "Parent - 'a'", "User - 'ada':Fairshare=2", "User - 'bob':Fairshare=3"]
    lines += ["Parent - 'b'", "User - 'ada':DefaultAccount='b':Fairshare=4", "User - 'bob':DefaultAccount='x'"]
    dump = dump_of(tmp_path, *lines)
    tree = read_accounts(dump.accounts)
    assert (tree.of_user("ada"), tree.of_user("bob")) == ("b", "a")
    assert dump.accounts["b"]["users"] == {"ada": 4}
    assert unused_of(dump) == [(4, "User - 'ada':Fairshare=2"), (8, "User - 'bob':DefaultAccount='x'")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "dump.txt: no line is like Account - 'lab'; give the output of sacctmgr dump"),
        ("\nClusterName=site\n", "dump.txt, line 2: 'ClusterName=site' must be like Account - 'lab':Fairshare=1; give"),
        ("Account - 'a':MaxJobs\n", "dump.txt, line 1: \"Account - 'a':MaxJobs\" must be like"),
        (
            "Parent - 'b'\nAccount - 'a'\n",
            "dump.txt, line 1: \"Parent - 'b'\": no line Account - 'b' is before it; give",
        ),
    ],
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        dump_of(tmp_path, text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
