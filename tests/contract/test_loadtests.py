"""Runs and reports are rows that are written again: the row written last holds, whatever the clock says."""

from store.loadtest_rows import Report
from tests.contract.conftest import Filled
from tests.support.loadtest_rows import RUN, judgement, request, resource, run, stage
from tests.support.rows import at

LATER = "20261130T130000Z-0002"


def test_the_row_written_last_of_each_run_holds_and_the_newest_run_is_first(filled: Filled) -> None:
    filled.put(run(state="running", ts=at(100)), run(LATER, state="waiting"))
    filled.put(run(state="finished", ts=at(50)))  # the clock was set back meanwhile
    rows = filled.store.query("loadtest_runs").to_pylist()
    assert [(row["run_id"], row["state"]) for row in rows] == [(LATER, "waiting"), (RUN, "finished")]
    assert filled.store.query("loadtest_runs", {"limit": 1}).num_rows == 1


def test_what_belongs_to_one_run_is_told_in_the_order_of_its_stages(filled: Filled) -> None:
    filled.put(stage(1), stage(0, requests=3), stage(0, requests=4), stage(0, LATER))
    filled.put(request(1, 1), request(0, 1), request(0, 0), request(0, 0, LATER))
    filled.put(judgement("a", stage_id=0), judgement("b"), judgement("c", run_id=LATER))
    filled.put(resource(0, device_id="GPU-0"), resource(0), resource(0, LATER))
    one = {"run_id": RUN}
    stages = filled.store.query("loadtest_stages", one).to_pylist()
    assert [(row["stage_id"], row["requests"]) for row in stages] == [(0, 4), (1, None)]
    requests = filled.store.query("loadtest_requests", one).to_pylist()
    assert [(row["stage_id"], row["request"]) for row in requests] == [(0, 0), (1, 0), (1, 1)]
    assert filled.store.query("loadtest_requests", {**one, "stage_id": 0}).num_rows == 1
    assert [row["code"] for row in filled.store.query("loadtest_judgements", one).to_pylist()] == ["b", "a"]
    assert [row["device_id"] for row in filled.store.query("loadtest_resources", one).to_pylist()] == [None, "GPU-0"]


def test_reports_are_told_as_they_were_written_last(filled: Filled) -> None:
    for report_id, name in (("one", "first"), ("two", "second"), ("one", "renamed")):
        filled.put(Report(at(0), "host-a", report_id, name, "{}"))
    rows = filled.store.query("reports").to_pylist()
    assert [(row["report_id"], row["name"]) for row in rows] == [("one", "renamed"), ("two", "second")]
    assert filled.store.query("report", {"report_id": "one"}).to_pylist()[0]["name"] == "renamed"
    assert filled.store.query("report", {"report_id": "three"}).num_rows == 0
