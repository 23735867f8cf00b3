"""What a person changes through the collector's socket: reports, and load tests that are deleted."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from settings import Settings
from store import address
from store.client import StoreClient
from store.protocol import RefusedError, StoreError, UnknownQueryError
from store.server import MAX_COMMAND_BYTES, serve
from store.writer import Writer
from tests.support.loadtest_rows import RUN, judgement, request, resource, run, stage
from tests.support.rows import sample

OTHER = "20261130T130000Z-0002"


@pytest.fixture
def client(writer: Writer, settings: Settings) -> Iterator[StoreClient]:
    def echo(given: dict[str, Any]) -> dict[str, Any]:
        return {"given": given, "thread": threading.current_thread().name}

    server = serve(writer, settings, dict, {"echo": echo})
    address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="test"))
    opened = StoreClient(settings)
    yield opened
    opened.close()
    server.stop()


def test_a_report_is_saved_found_again_renamed_and_deleted(client: StoreClient) -> None:
    document = {"windows": [{"engine": "vLLM · Qwen"}], "scrub": True}
    report_id = client.command("report_save", {"name": " Monday ", "document": document})["report_id"]
    (row,) = client.query("report", {"report_id": report_id}).to_pylist()
    assert (row["name"], json.loads(row["document"])) == ("Monday", document)
    again = client.command("report_save", {"report_id": report_id, "name": "Tuesday", "document": {}})
    assert again == {"report_id": report_id}
    assert [row["name"] for row in client.query("reports").to_pylist()] == ["Tuesday"]
    assert client.command("report_delete", {"report_id": report_id}) == {"deleted": True}
    assert client.command("report_delete", {"report_id": report_id}) == {"deleted": False}  # the second browser
    assert client.query("reports").num_rows == 0
    with pytest.raises(RefusedError, match="deleted meanwhile"):
        client.command("report_save", {"report_id": report_id, "name": "Wednesday", "document": {}})


def test_deleting_a_run_takes_all_its_rows_and_nobody_elses(client: StoreClient, writer: Writer) -> None:
    for run_id in (RUN, OTHER):
        writer.put([run(run_id, "running"), stage(0, run_id), request(0, 0, run_id), request(1, 0, run_id)])
        writer.put([judgement("a", run_id=run_id), resource(0, run_id), run(run_id)])
    # nothing is flushed: the rows are still queued when the command comes
    assert client.command("loadtest_delete", {"run_id": RUN}) == {"deleted": True}
    assert client.command("loadtest_delete", {"run_id": RUN}) == {"deleted": False}
    writer.put([sample(0)])
    writer.flush()
    (counted,) = client.query("status").to_pylist()
    assert {name[5:]: value for name, value in counted.items() if name.startswith("rows_loadtest")} == {
        "loadtest_run": 2, "loadtest_stage": 1, "loadtest_request": 2, "loadtest_judgement": 1, "loadtest_resource": 1,
    }  # fmt: skip
    assert [row["run_id"] for row in client.query("loadtest_runs").to_pylist()] == [OTHER]


@pytest.mark.parametrize(("state", "told"), [("running", "still runs"), ("waiting", "still waits")])
def test_a_run_that_is_not_over_is_not_deleted(client: StoreClient, writer: Writer, state: str, told: str) -> None:
    writer.put([run(state=state), stage(0)])
    with pytest.raises(RefusedError, match=told):
        client.command("loadtest_delete", {"run_id": RUN})
    assert client.query("loadtest_stages", {"run_id": RUN}).num_rows == 1


def test_two_who_delete_at_once_delete_once(client: StoreClient, writer: Writer) -> None:
    writer.put([run(), *(request(number) for number in range(2000))])
    answers: list[bool] = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.command("loadtest_delete", {"run_id": RUN})["deleted"]))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, False, False, True]


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("no_such_command", {}, "there are .*report_save"),
        ("report_save", {"document": {}}, "name must be given"),
        ("report_save", {"name": "x" * 300, "document": {}}, "at most 200"),
        ("report_save", {"name": "x", "document": "{}"}, "JSON object"),
        ("report_save", {"name": "x", "document": {"a": "x" * 2_000_000}}, "too large"),
        ("report_delete", {"report_id": 5}, "report_id must be given"),
        ("loadtest_delete", {}, "run_id must be given"),
        ("loadtest_delete", {"run_id": float("nan")}, "JSON"),
    ],
)
def test_a_wrong_command_is_told_what_is_wrong(
    client: StoreClient, name: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(UnknownQueryError, match=told):
        client.command(name, given)


def test_commands_of_the_collector_run_beside_the_servers_loop(client: StoreClient) -> None:
    answer = client.command("echo", {"text": "é", "list": [1, None, {"a": 0.5}]})
    assert answer["given"] == {"text": "é", "list": [1, None, {"a": 0.5}]}
    assert answer["thread"] != "store-server"


def test_a_command_may_be_larger_than_a_query_but_not_without_bound(client: StoreClient) -> None:
    assert len(client.command("echo", {"text": "x" * 1_000_000})["given"]["text"]) == 1_000_000
    with pytest.raises(UnknownQueryError, match="larger than 50,000,000 bytes"):
        client.command("echo", {"text": "x" * MAX_COMMAND_BYTES})


def test_an_edit_that_fails_changes_nothing_and_writing_goes_on(client: StoreClient, writer: Writer) -> None:
    writer.put([run(), stage(0)])

    def broken(connection: Any) -> None:
        connection.execute("DELETE FROM loadtest_stage")
        connection.execute("DELETE FROM no_such_table")

    with pytest.raises(StoreError, match="nothing was changed"):
        writer.edit(broken)
    writer.put([sample(0)])
    writer.flush()
    (counted,) = client.query("status").to_pylist()
    assert (counted["rows_loadtest_stage"], counted["rows_engine_sample"]) == (1, 1)


def test_no_edit_is_begun_on_a_store_that_is_closed(settings: Settings) -> None:
    writer = Writer(settings.store_path, settings.store)
    writer.close()
    with pytest.raises(StoreError, match="closed"):
        writer.edit(lambda connection: connection.execute("DELETE FROM event"))
