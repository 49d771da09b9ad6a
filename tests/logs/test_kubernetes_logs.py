"""What only logs of Kubernetes have: quantities, conditions, objects that belong together."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from log_samples import SAMPLES

from polluxsim.common.errors import InvalidInputError
from polluxsim.logs.formats import json_rows
from polluxsim.logs.importing import import_trace


def imported(tmp_path, name, *items, **options):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"kind": "List", "items": list(items)}))
    report = import_trace(name, path, tmp_path / "trace.parquet", **options)
    return report, pq.read_table(tmp_path / "trace.parquet").to_pylist()


def sample(name, number):
    return json.loads(SAMPLES[name].log.read_text())["items"][number]


@pytest.mark.parametrize(
    ("quantity", "gpus"), [("4", 4), (4, 4), ("4k", 4000), ("500m", 0.5), ("1e1", 10), ("1Ki", 1024), ("2.5", 2.5)]
)
def test_quantities(quantity, gpus, tmp_path):
    workload = sample("kueue", 1)
    container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": quantity}}
    _, (job,) = imported(tmp_path, "kueue", workload)
    assert job["num_gpus"] == gpus


@pytest.mark.parametrize("quantity", ["", "x", "-1", "1Q", "1e99", True, None, "٣", "nan", ["1"]])
def test_quantities_that_are_none_are_named(quantity, tmp_path):
    workload = sample("kueue", 1)
    container = workload["spec"]["podSets"][0]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"nvidia.com/gpu": quantity}}
    with pytest.raises(InvalidInputError, match=r"line 1: key 'spec\..*nvidia.com/gpu' is not a quantity like"):
        imported(tmp_path, "kueue", workload)


def test_a_workload_without_admission_has_what_its_pods_request(tmp_path):
    workload = sample("kueue", 0)
    del workload["status"]["admission"]
    _, (job,) = imported(tmp_path, "kueue", workload)
    assert (job["num_gpus"], job["cpus"], job["num_instances"], job["gpu_type"]) == (8, 16.5, 3, None)
    assert job["partition"] == "vision-local"


def test_keys_are_named_with_their_path(tmp_path):
    workload = sample("kueue", 0)
    workload["status"]["conditions"][2]["lastTransitionTime"] = "soon"
    with pytest.raises(
        InvalidInputError, match=r"key 'status.conditions\[\].lastTransitionTime' is not a time with its zone, like"
    ):
        imported(tmp_path, "kueue", workload)
    workload = sample("kueue", 0)
    del workload["metadata"]["creationTimestamp"]
    with pytest.raises(InvalidInputError, match=r"key 'metadata.creationTimestamp' is missing"):
        imported(tmp_path, "kueue", workload)


def test_a_job_may_follow_or_precede_its_pod_group(tmp_path):
    group, job = sample("volcano", 1), sample("volcano", 5)
    for items in ((group, job), (job, group)):
        _, (row,) = imported(tmp_path, "volcano", *items)
        assert (row["duration"], row["priority"], row["qos"]) == (3000, None, "urgent")


def test_a_job_without_a_history_has_no_duration(tmp_path):
    group, job = sample("volcano", 1), sample("volcano", 5)
    del job["status"]["conditions"]
    job["status"]["runningDuration"] = "1h2m3.5s"  # counts from the creation of the Job
    _, (row,) = imported(tmp_path, "volcano", group, job)
    assert (row["duration"], row["queueing_delay"], row["status"]) == (None, None, "completed")


def test_a_job_named_none_belongs_to_no_group_without_an_owner(tmp_path):
    group, job = sample("volcano", 1), sample("volcano", 5)
    job["metadata"] = {"name": "None", "creationTimestamp": job["metadata"]["creationTimestamp"]}
    group["metadata"] = {"name": "group", "creationTimestamp": group["metadata"]["creationTimestamp"]}
    _, (row,) = imported(tmp_path, "volcano", group, job)
    assert (row["duration"], row["status"]) == (None, None)


def test_a_pod_group_alone_has_no_duration(tmp_path):
    report, (row,) = imported(tmp_path, "volcano", sample("volcano", 1))
    assert (row["duration"], row["status"], report.without_duration) == (None, None, 1)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 1000])
def test_a_list_under_a_key_is_read_whatever_the_pieces(chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(json_rows, "CHUNK", chunk)
    items = [{"a": 12.5e-3, "b": [1, {"items": 3}]}, {"c": "é"}, {}]
    path = tmp_path / "log.json"
    path.write_text(
        json.dumps({"count": 12345, "rate": -1.5e-30, "x": {"items": []}, "items": items, "on": True, "n": 7})
    )
    assert [value for _, value in json_rows.read_objects(path, "items")] == items


@pytest.mark.parametrize("name", ["kueue", "volcano"])
def test_a_file_without_the_list_is_named(name, tmp_path):
    path = tmp_path / "log.json"
    for text, message in (
        ('{"kind": "List"}', "line 1: the file has no list 'items'"),
        ("[]", "line 1: expected {, the start of an object with the list 'items'; found '\\['"),
        ('{"items": []} x', "line 1: found 'x' after the end of the object; remove the rest"),
        ('{"items" []}', "line 1: expected : after a key"),
        ('{"items": []', "line 1: the file ends before , or } after a value"),
    ):
        path.write_text(text)
        with pytest.raises(InvalidInputError, match=message):
            import_trace(name, path, tmp_path / "trace.parquet")
