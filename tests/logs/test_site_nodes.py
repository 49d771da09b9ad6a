"""The nodes of a site: text and JSON of sinfo and scontrol, and of kubectl."""

import json
from pathlib import Path

import pytest
import yaml

from polluxsim.cli.main import main
from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.clusters import Cluster
from polluxsim.logs.site.hostlist import expanded
from polluxsim.logs.site.nodes import NodeList, cluster_yaml, read_nodes

# A site with A100 in two partitions of which one has all nodes, T4 in a third, and nodes that take no jobs.
SINFO = """\
PARTITION AVAIL TIMELIMIT NODES STATE GRES CPUS NODELIST
gpu*  up infinite 3 mix gpu:a100:8(S:0-1) 128 a[01-03]
gpu*  up infinite 1 drng gpu:a100:8(S:0-1) 128 a05
gpu*  up infinite 1 idle* gpu:a100:8(S:0-1) 128 a06
long  up 7-00:00:00 2 alloc gpu:a100:8(S:0-1) 128 a[02-03]
t4    up infinite 2 idle~ gpu:t4:4 64 t[1-2]
cpu   up infinite 2 idle (null) 32 c[1-2]
"""

BY_NODE = """\
NODELIST|PARTITION|GRES|STATE|CPUS
a01|gpu*|gpu:a100:8(S:0-1)|mixed|128
a02|gpu*|gpu:a100:8(S:0-1)|mixed|128
a02|long|gpu:a100:8(S:0-1)|mixed|128
a03|gpu*|gpu:a100:8(S:0-1)|mixed|128
a03|long|gpu:a100:8(S:0-1)|mixed|128
a05|gpu*|gpu:a100:8(S:0-1)|draining|128
a06|gpu*|gpu:a100:8(S:0-1)|idle*|128
t1|t4|gpu:t4:4|idle~|64
t2|t4|gpu:t4:4|idle~|64
c1|cpu|(null)|idle|32
c2|cpu|(null)|idle|32
"""

NODES = {
    "a01": ("gpu:a100:8(S:0-1)", "MIXED", 128, "gpu"),
    "a02": ("gpu:a100:8(S:0-1)", "MIXED", 128, "gpu,long"),
    "a03": ("gpu:a100:8(S:0-1)", "MIXED", 128, "gpu,long"),
    "a05": ("gpu:a100:8(S:0-1)", "MIXED+DRAIN", 128, "gpu"),
    "a06": ("gpu:a100:8(S:0-1)", "IDLE+NOT_RESPONDING", 128, "gpu"),
    "t1": ("gpu:t4:4", "IDLE+POWERED_DOWN", 64, "t4"),
    "t2": ("gpu:t4:4", "IDLE+POWERED_DOWN", 64, "t4"),
    "c1": ("(null)", "IDLE", 32, "cpu"),
    "c2": ("(null)", "IDLE", 32, "cpu"),
}
"""GRES, state, CPUs and partitions of each node."""


def scontrol() -> str:
    """Return the output of scontrol show nodes, with a reason whose words look like values."""
    records = []
    for name, (gres, state, cpus, partitions) in NODES.items():
        records.append(
            f"NodeName={name} Arch=x86_64 CoresPerSocket=32\n   CPUAlloc=4 CPUTot={cpus} CPULoad=0.08\n"
            f"   Gres={gres}\n   State={state} ThreadsPerCore=2 TmpDisk=0\n   Partitions={partitions} \n"
            f"   CfgTRES=cpu={cpus},mem=1M,billing=64\n   Reason=State=DOWN was Gres=gpu:1 [root@2026-03-01]\n"
        )
    return "\n".join(records)


def scontrol_json(*, old: bool) -> str:
    """Return the output of scontrol show nodes --json, in the form of Slurm 22.05 or of 23.11."""
    nodes = []
    for name, (gres, state, cpus, partitions) in NODES.items():
        first, *flags = state.split("+")
        node = {"name": name, "gres": gres.replace("(null)", ""), "cpus": cpus, "partitions": partitions.split(",")}
        node |= {"state": first.lower(), "state_flags": flags} if old else {"state": [first, *flags]}
        nodes.append(node)
    return json.dumps({"meta": {}, "errors": [], "nodes": nodes})


def sinfo_json() -> str:
    """Return the output of sinfo --json since Slurm 23.02, with a row for each partition and state."""
    rows = []
    for name, (gres, state, cpus, partitions) in NODES.items():
        for partition in partitions.split(","):
            rows.append({
                "node": {"state": state.split("+")},
                "nodes": {"total": 1, "nodes": [name]},
                "cpus": {"minimum": cpus, "maximum": cpus},
                "gres": {"total": gres.replace("(null)", "")},
                "partition": {"name": partition},
            })  # fmt: skip
    return json.dumps({"meta": {}, "sinfo": rows})


def kubectl() -> str:
    """Return the output of kubectl get nodes -o json."""
    items = []
    for name, gpus, product, extra in (
        ("g1", "8", "NVIDIA-A100-SXM4-80GB", {}),
        ("g2", "8", "NVIDIA-A100-SXM4-80GB", {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}),
        ("g3", "8", "NVIDIA-A100-SXM4-80GB", {"unschedulable": True}),
        ("g4", "8", "NVIDIA-A100-SXM4-80GB", {"taints": [{"key": "repair", "effect": "NoSchedule"}]}),
        ("g5", "4", "Tesla-T4", {}),
        ("m1", "0", "", {}),
    ):
        labels = {"nvidia.com/gpu.product": product} if product else {}
        ready = {"type": "Ready", "status": "True"}
        status = {"allocatable": {"cpu": "96", "nvidia.com/gpu": gpus}, "conditions": [ready]}
        items.append({"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": extra, "status": status})
    items.append(
        items[4]
        | {
            "metadata": {"name": "g6"},
            "status": {
                "allocatable": {"cpu": "96", "nvidia.com/gpu": "4"},
                "conditions": [{"type": "Ready", "status": "Unknown"}],
            },
        }
    )
    return json.dumps({"apiVersion": "v1", "items": items, "kind": "List"})


def read(tmp_path: Path, text: str, unit: str = "gpus") -> NodeList:
    path = tmp_path / "nodes"
    path.write_text(text, encoding="utf-8")
    return read_nodes(path, unit)


@pytest.mark.parametrize(
    "text",
    [SINFO, BY_NODE, scontrol(), scontrol().replace("\n  ", " "), scontrol_json(old=True), scontrol_json(old=False),
     sinfo_json()],
    ids=["sinfo", "sinfo -N", "scontrol", "scontrol -o", "scontrol 22.05", "scontrol 23.11", "sinfo --json"],
)  # fmt: skip
def test_all_forms_give_the_same_nodes(tmp_path: Path, text: str) -> None:
    nodes = read(tmp_path, text)
    groups = {(group.nodes, group.gpus, group.gpu_type, group.partitions) for group in nodes.groups}
    assert groups == {
        (("a01",), 8, "a100-40", ("gpu",)),
        (("a02", "a03"), 8, "a100-40", ("gpu", "long")),
        (("t1", "t2"), 4, "t4", ("t4",)),
    }
    assert nodes.left_out == {"drained": ["a05"], "not responding": ["a06"], "without GPUs": ["c1", "c2"]}
    assert nodes.partitions() == {"gpu": (3, 24), "long": (2, 16), "t4": (2, 8)}
    assert (nodes.num_nodes, nodes.num_gpus) == (5, 32)
    assert sorted(nodes.numbers.values()) == list(range(5))


def test_kubernetes(tmp_path: Path) -> None:
    nodes = read(tmp_path, kubectl())
    assert [(group.nodes, group.gpus, group.gpu_type) for group in nodes.groups] == [
        (("g1", "g2"), 8, "a100-80"),
        (("g5",), 4, "t4"),
    ]
    assert nodes.left_out == {
        "cordoned": ["g3"],
        "with a taint that keeps jobs off": ["g4"],
        "without GPUs": ["m1"],
        "not ready": ["g6"],
    }


def test_cpus_count_in_place_of_gpus(tmp_path: Path) -> None:
    nodes = read(tmp_path, BY_NODE, "cpus")
    assert nodes.num_gpus == 3 * 128 + 2 * 64 + 2 * 32
    assert nodes.unit == "CPUs"
    assert not any(group.gpu_type for group in nodes.groups)


def test_the_file_is_a_configuration_of_the_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.txt").write_text(SINFO, encoding="utf-8")
    target = tmp_path / "conf" / "cluster" / "site.yaml"
    assert main(["log", "nodes", str(tmp_path / "nodes.txt"), "-o", str(target)]) == 0
    printed = capsys.readouterr().out
    assert "5 nodes with 32 GPUs take jobs" in printed
    assert "left out: 1 drained, like a05" in printed
    assert f"--config-dir {tmp_path / 'conf'} cluster=site" in printed
    cluster = Cluster.of_groups(yaml.safe_load(target.read_text(encoding="utf-8"))["groups"])
    assert cluster.gpus_per_node == (8, 8, 8, 4, 4)
    assert cluster.partitions == {"gpu": (0, 1, 2), "long": (1, 2), "t4": (3, 4)}
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("name,time,num_replicas,duration,queue\na,0,4,60,t4\n", encoding="utf-8")
    settings = ["policy=fifo", "engine=log", f"workload.path={jobs}"]
    run = ["run", "--config-dir", str(tmp_path / "conf"), "cluster=site", *settings]
    run += ["-o", str(tmp_path / "run")]
    assert main(run) == 0


def test_types_are_left_out_if_a_node_states_none(tmp_path: Path) -> None:
    nodes = read(tmp_path, BY_NODE.replace("gpu:t4:4", "gpu:4"))
    assert {group.gpu_type for group in nodes.groups} == {""}
    assert nodes.notes == ("types left out: 2 of 5 nodes state no GPU type, like t1",)
    assert "type:" not in cluster_yaml(nodes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu up infinite 1 idle a01\n",
            "no column GRES; give the output of sinfo",
        ),
        ("hello\n", "line 1: this is not a list of nodes"),
        (BY_NODE.replace("a01|", "a[1-|", 1), "line 2: column 'NODELIST' is not a list of nodes"),
        ("NODELIST|STATE|GRES\nc1|idle|(null)\n", "no node with GPUs takes jobs (1 without GPUs)"),
        ("NODELIST|STATE|GRES\na1|down|gpu:2\n", "no node with GPUs takes jobs (1 down)"),
        ('{"jobs": []}', "the file has no list 'sinfo'"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("a1,b[2,4-5]x", ["a1", "b2x", "b4x", "b5x"]),
        ("", []),
        ("a[1", None),
        ("a[x-y]", None),
        ("a[9-1]", None),
        ("a[1-9999999]", None),
        ("a[1-99999]b[1-99999]", None),  # the product would not fit into memory
    ],
)
def test_lists_of_nodes(text: str, names: list[str] | None) -> None:
    assert expanded(text) == names
