"""A list of nodes is a cluster; a wrong row is one line."""

from __future__ import annotations

import pytest

from polluxsim.common.errors import InvalidInputError
from polluxsim.hardware.clusters import Cluster, cluster_of_file
from polluxsim.hardware.gpu_types import GPU_TYPES, types_in
from polluxsim.hardware.hosts import Host


def test_a_list_of_nodes_is_a_cluster_in_its_order(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text("sn,gpu,model\na,2,P100\nb,0,\nc,8,G2\nd,8,V100M32\n")
    cluster = cluster_of_file(str(path))
    assert cluster == Cluster.of_groups([[1, 2, "p100"], [1, 8, {"name": "g2"}], [1, 8, "v100-32"]])
    assert types_in("T4|P100|T4|MISC") == (GPU_TYPES["t4"], GPU_TYPES["p100"])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a,1.5,T4", "line 2: column 'gpu' is '1.5', must be a whole number ≥ 0"),
        ("a,1,", "line 2: column 'model' is '', must be a name"),
        ("a,1,T4|P100", "must be one type of GPU"),
        ("a,0,", "none of 1 nodes has a GPU"),
    ],
)
def test_a_wrong_list_is_one_line(tmp_path, rows, words):
    (tmp_path / "nodes.csv").write_text(f"sn,gpu,model\n{rows}\n")
    with pytest.raises(InvalidInputError, match=words):
        cluster_of_file(str(tmp_path / "nodes.csv"))


def test_openb_has_seven_types(data_folder):
    cluster = cluster_of_file(str(data_folder / "openb" / "openb_node_list_all_node.csv"))
    assert (cluster.num_nodes, cluster.num_gpus, len(cluster.types)) == (1213, 6212, 7)


def test_a_list_says_cpus_and_memory_where_they_are_to_count(tmp_path, data_folder):
    cluster = cluster_of_file(str(data_folder / "openb" / "openb_node_list_all_node.csv"), hosts=True)
    assert len(cluster.hosts) == 1213
    assert Cluster.of_groups(cluster.groups) == cluster
    path = tmp_path / "nodes.csv"
    path.write_text("gpu,model,cpu_milli,memory_mib\n0,,0,0\n2,T4,96000,1000\n")
    assert cluster_of_file(str(path), hosts=True).hosts == (Host(96.0, pytest.approx(1.048576)),)
    path.write_text("gpu,model,cpu_milli,memory_mib\n2,T4,0,1000\n")
    with pytest.raises(InvalidInputError, match="line 2: column 'cpu_milli' is '0', must be a finite number > 0"):
        cluster_of_file(str(path), hosts=True)
    path.write_text("gpu,model\n2,T4\n")
    with pytest.raises(InvalidInputError, match="missing column 'cpu_milli'"):
        cluster_of_file(str(path), hosts=True)
