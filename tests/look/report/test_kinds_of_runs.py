"""Reports of elastic clusters, rigid jobs, unlike nodes, jobs that ended otherwise, and sweeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from polluxsim.cli.main import main
from polluxsim.records.results import JobRecord, ReasonRecord, ReasonText, RoundRecord, Status
from polluxsim.records.storage import write_run

from .conftest import CONFIG, Page, hand_made, opened, write_hand_made
from .test_page import IS_HELD, choose, move_slider, over, size  # noqa: F401

if TYPE_CHECKING:
    from pathlib import Path

ELASTIC = {"_target_": "polluxsim.hardware.clusters.Cluster.elastic", "num_nodes": 4, "least_nodes": 1,
           "gpus_per_node": 4, "startup_time": 120.0, "node_price": 2.0}  # fmt: skip


def page_of(browser: Any, folder: Path, *runs: Path, place: str = "") -> Page:
    assert main(["report", *map(str, runs), "-o", str(folder / "r.html")]) == 0
    return opened(browser, folder / "r.html", place)


@pytest.fixture
def elastic(tmp_path: Path) -> Path:
    """Two nodes of four are up for an hour, then one."""
    rounds = (
        RoundRecord(60.0, 2, 4, 10.0, 1.0, nodes=2, hourly_cost=6.0, cost=0.1),
        RoundRecord(3600.0, 2, 4, 10.0, 1.0, nodes=1, hourly_cost=2.0, cost=6.0),
    )
    result = hand_made()
    few = tuple(record for record in result.allocation_records if record.job == "small")
    elastic = replace(result, round_records=rounds, allocation_records=few)
    write_run(tmp_path / "elastic", elastic, {"config": CONFIG | {"cluster": ELASTIC}, "seed": 7, "nodes": [[4, 4]]})
    return tmp_path / "elastic"


def pixel(page: Page, x: float, y: float) -> list[int]:
    script = """
      const map = document.getElementById("map"), pen = map.getContext("2d"), { LEFT, RIGHT } = polluxReport.chart;
      const ratio = map.width / map.clientWidth, left = LEFT * ratio, wide = map.width - (LEFT + RIGHT) * ratio;
      const x = Math.floor(left + arguments[0] * wide), y = Math.floor(arguments[1] * map.height);
      return [...pen.getImageData(x, y, 12, 12).data];
    """
    return page.run(script, x, y)


def test_nodes_that_are_not_rented_are_neither_idle_nor_in_the_count(
    browser: Any, tmp_path: Path, elastic: Path
) -> None:
    page = page_of(browser, tmp_path, elastic)
    idle, none, later = pixel(page, 0.2, 0.35), pixel(page, 0.2, 0.85), pixel(page, 0.8, 0.35)
    assert len({tuple(idle[i : i + 4]) for i in range(0, len(idle), 4)}) == 1
    assert len({tuple(none[i : i + 4]) for i in range(0, len(none), 4)}) == 2  # hatched
    assert later != idle
    move_slider(page, 1000)
    assert "4 of 8" in page.text("#moment-numbers")
    told = page.text("#moment-numbers").splitlines()
    assert [told[told.index(name) + 1] for name in ("nodes up", "starting", "rented for")] == [
        "2",
        "1",
        "$6.00 an hour",
    ]
    left, top = page.place("map", 0.3, 0.9)
    (said,) = page.hover(left, top)
    assert "not rented" in said


def test_an_elastic_run_shows_nodes_and_cost(browser: Any, tmp_path: Path, elastic: Path) -> None:
    page = page_of(browser, tmp_path, elastic)
    (said,) = page.hover(*page.place("panel-cost", 0.5, 0.5))
    assert "Nodes" in said
    assert "$" in said
    assert "cost of nodes $\n8.000" in page.text("#summary .summary").replace(" $ ", " $\n")
    assert "GPUs in use" not in page.text("#summary .summary")  # of how many, would be the question


def test_rigid_jobs_have_no_efficiency_and_colours_of_their_own(browser: Any, tmp_path: Path) -> None:
    result = hand_made()
    jobs = tuple(job._replace(application="rigid") for job in result.job_records)
    rounds = tuple(record._replace(efficiency=1.0) for record in result.round_records)
    rigid = replace(result, job_records=jobs, round_records=rounds)
    write_run(tmp_path / "rigid", rigid, {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "rigid")
    assert "efficiency" not in page.text("#timeline").lower()
    assert "efficiency" not in page.text("#moment-numbers")
    assert "Neighbouring jobs differ in colour, jobs far apart may look alike" in page.text("#colours")
    assert not page.deep("#by-application")  # of one application there is nothing to compare


def test_groups_of_jobs_are_stacked_and_told_in_a_table(browser: Any, tmp_path: Path) -> None:
    result = hand_made()
    users = dict(zip(("small", "large"), ("ann", "bob"), strict=True))
    queues = {"small": "prod"}
    jobs = tuple(
        job._replace(user=users.get(job.job), queue=queues.get(job.job), num_replicas=4) for job in result.job_records
    )
    write_run(tmp_path / "run", replace(result, job_records=jobs), {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "run")
    rows = "return [...document.querySelectorAll('#group-rows tr')].map((row) => row.innerText.split(/\\s*\\t\\s*/))"
    assert [row[0] for row in page.run(rows)] == ["imagenet", "cifar10", "ncf"]
    choose(page, "group-by", "user")
    assert page.run(rows) == [
        ["bob", "1", "1 h 58 min", "20 s", "3", "10 min 20 s", "10 min 20 s", "9.6"],
        ["ann", "1", "1 h 01 min", "1 min", "2", "1 min", "1 min", "4.0"],
        ["(none)", "1", "1 h 57 min", "1 h 57 min", "1", "1 h 57 min", "1 h 57 min", "0.0"],
    ]
    (said,) = page.hover(*over(page, "groups", 2400, 0.5))
    assert "ann 4" in said
    assert "bob 4" in said
    choose(page, "group-by", "queue")
    assert [row[0] for row in page.run(rows)] == ["(none)", "prod"]
    choose(page, "group-by", "GPUs asked for")
    assert [row[:2] for row in page.run(rows)] == [["4 GPUs", "3"]]


def test_a_run_with_more_nodes_has_all_of_them_on_the_map(browser: Any, tmp_path: Path) -> None:
    write_hand_made(tmp_path / "a")
    result = hand_made()
    last = tuple(
        record._replace(nodes=tuple(node + 30 for node in record.nodes)) for record in result.allocation_records
    )
    write_run(
        tmp_path / "b", replace(result, allocation_records=last), {"config": CONFIG, "seed": 7, "nodes": [[32, 4]]}
    )
    page = page_of(browser, tmp_path, tmp_path / "a", tmp_path / "b")
    choose(page, "run", "1")
    page.until("return document.getElementById('run').value === '1'", "the other run")
    assert page.run(IS_HELD, [[0.9, 0.99], [0.9, 0.5], [0.9, 0.01]]) == [True, False, False]
    (said,) = page.hover(*page.place("map", 0.9, 0.99))
    assert "node 31, GPU" in said


def test_jobs_that_were_cancelled_or_rejected_are_said_to_be_and_wait_no_longer(
    browser: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = hand_made()
    gone = JobRecord("gone", "ncf", 300.0, None, None, None, None, 0, 0.0, Status.CANCELLED, end_time=900.0)
    refused = gone._replace(job="refused", status=Status.REJECTED, end_time=360.0)
    reason = ReasonRecord(360.0, "refused", "not-admitted", (("deadline", 600.0),), ())
    texts = {"not-admitted": ReasonText("It would end after its deadline at {deadline:clock}.", {})}
    more = replace(result, job_records=(*result.job_records, gone, refused), reason_records=(reason,))
    more = replace(more, reason_texts=texts)
    write_run(tmp_path / "run", more, {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "run")
    assert page.column("status") == ["completed", "completed", "cut off", "cancelled", "rejected"]
    move_slider(page, 600)
    assert [text.split()[0] for text in page.texts("#waiting a")] == ["</script><img", "gone"]
    move_slider(page, 1000)
    assert "gone" not in page.text("#waiting")
    assert {"cancelled 1", "rejected 1", "cut off 1"} <= set(page.text("#summary .summary").splitlines())
    page.run("location.hash = '#job/0/refused'")
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert page.text("#job-line") == "ncf · rejected"
    assert "It would end after its deadline at 0:10:00." in page.text("#job-waiting")
    assert main(["why", str(tmp_path / "run"), "refused"]) == 0
    assert "rejected at 0:06:00" in " ".join(capsys.readouterr().out.split())


def test_a_job_that_comes_between_two_rounds_is_told_so_as_by_why(
    browser: Any, tmp_path: Path, simulated: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page = page_of(browser, tmp_path, simulated["pollux"])
    names = page.column("job")
    capsys.readouterr()
    for name in names[:4]:
        page.run(f"location.hash = '#job/0/{name}'")
        page.until(f"return document.getElementById('job-title').textContent === '{name}'", "the page of the job")
        assert main(["why", str(simulated["pollux"]), name]) == 0
        why = " ".join(capsys.readouterr().out.split())
        assert ("between two rounds" in why) == ("between two rounds" in page.text("#job-waiting"))


def test_runs_of_other_jobs_are_not_compared(browser: Any, tmp_path: Path) -> None:
    for seed in range(3):
        result = hand_made()
        jobs = tuple(job._replace(submit_time=job.submit_time + seed) for job in result.job_records)
        config = CONFIG | {"seed": seed}
        write_run(
            tmp_path / f"s{seed}",
            replace(result, job_records=jobs),
            {"config": config, "seed": seed, "nodes": [[2, 4]]},
        )
    page = page_of(browser, tmp_path, *(tmp_path / f"s{seed}" for seed in range(3)))
    assert page.run("return document.querySelectorAll('.better, .worse').length") == 0
    assert "seeds 0, 1, 2" in page.text(".what")
    assert "FIFO" in page.text(".pooled")
    assert (
        len({page.run("return getComputedStyle(arguments[0]).borderColor", box) for box in page.deep(".show-run")}) == 3
    )


def test_paper_is_light_and_has_every_job_and_nothing_is_cut(browser: Any, tmp_path: Path) -> None:
    result = hand_made()
    many = tuple(result.job_records[0]._replace(job=f"job-{i}") for i in range(300))
    write_run(tmp_path / "run", replace(result, job_records=(*result.job_records, *many)),
              {"config": CONFIG, "seed": 7, "nodes": [[2, 4]]})  # fmt: skip
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    page = page_of(browser, tmp_path, tmp_path / "run")
    assert len(page.column("job")) < 100
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 720, "height": 1000, "deviceScaleFactor": 1, "mobile": False})  # fmt: skip
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(page.column("job")) == 303
    assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    cut = page.run("""
      const all = [...document.querySelectorAll("main figure, main table, main svg, main canvas")];
      return all.filter((e) => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1)
        .map((e) => e.outerHTML.slice(0, 60));
    """)
    assert cut == []
    inside = "return [...document.querySelectorAll('figure')].map((e) => getComputedStyle(e).breakInside)"
    assert set(page.run(inside)) == {"avoid"}
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert page.run("return document.documentElement.dataset.theme") == "dark"


def test_jobs_of_two_runs_are_compared_one_by_one(browser: Any, tmp_path: Path) -> None:
    write_hand_made(tmp_path / "a")
    result = hand_made()
    first, second, third = result.job_records
    sooner = second._replace(completion_time=5000.0, jct=4900.0)
    later = first._replace(completion_time=4000.0, jct=4000.0, start_time=400.0)
    moves = tuple(
        record._replace(time={60.0: 400.0, 3660.0: 4000.0, 7200.0: 5000.0}.get(record.time, record.time))
        for record in result.allocation_records
    )
    other = replace(result, job_records=(later, sooner, third), allocation_records=tuple(sorted(moves)))
    config = CONFIG | {"policy": {"_target_": "polluxsim.policies.ordered.classic.Srtf"}}
    write_run(tmp_path / "b", other, {"config": config, "seed": 7, "nodes": [[2, 4]]})
    page = page_of(browser, tmp_path, tmp_path / "a", tmp_path / "b")
    assert page.texts("#versus-winners li") == ["large 36 min 40 s sooner: 36 min 40 s less training"]
    assert page.texts("#versus-losers li") == ["small 5 min 40 s later: 5 min 40 s more waiting"]
    page.run("document.querySelector('#versus-chart').scrollIntoView({block: 'center', behavior: 'instant'})")
    x, y = page.run(
        "const { x, y } = document.querySelector('#versus-chart circle').getBoundingClientRect(); return [x + 3, y + 3]"
    )
    (said,) = page.hover(round(x), round(y))
    assert "small (cifar10)" in said
    assert "1 h 01 min" in said
    page.run("location.hash = '#job/0/large'")
    page.until("return !document.getElementById('job').hidden", "the page of the job")
    assert [text.split()[0] for text in page.texts("#job-twins th")] == ["FIFO", "SRTF"]
    assert page.run("return document.querySelectorAll('#job-gpus .line').length") == 2


def test_gpu_types_stand_beside_their_rows_and_above_their_first_nodes(browser: Any, tmp_path: Path) -> None:
    groups = [[1, 4, "t4"], [1, 4, "a100-40"]]
    cluster = {"_target_": "polluxsim.hardware.clusters.Cluster.of_groups", "groups": groups}
    write_run(tmp_path / "typed", hand_made(), {"config": CONFIG | {"cluster": cluster}, "seed": 7, "nodes": groups})
    page = page_of(browser, tmp_path, tmp_path / "typed")
    said = page.run("""
      const said = [], pen = CanvasRenderingContext2D.prototype, fillText = pen.fillText;
      pen.fillText = function (text, ...place) { said.push(text); return fillText.call(this, text, ...place); };
      polluxReport.cluster.draw();
      document.getElementById("map-of").dispatchEvent(new Event("change"));
      return said;
    """)
    assert {"0 t4", "1 a100-40", "t4", "a100-40"} <= set(said)
