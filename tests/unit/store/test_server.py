"""The read API: who may open it, limits on reads, and what a client sees when things go wrong."""

import socket
import stat
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from settings import Settings, StoreSettings
from store import address
from store import server as server_module
from store.address import Address
from store.client import StoreClient
from store.local import LocalStore
from store.protocol import Parameter, StoreBusyError, StoreError, StoreUnavailableError
from store.reads import Reader
from store.server import ReadServer, serve
from store.writer import Writer
from tests.support.rows import HOST, engine, epoch, sample
from tests.support.wait import until

SPAN: Mapping[str, Parameter] = {"start": "2026-01-01T00:00:00Z", "end": "2026-12-31T00:00:00Z", "points": 2000}


def _announce(server: ReadServer, settings: Settings) -> Address:
    told = server.address(started=datetime.now(UTC), started_by="test")
    address.write(settings.run_folder, told)
    return told


def _many_samples(writer: Writer, rows: int) -> None:
    writer.put([engine(), epoch()])
    writer.flush()
    cursor = writer.cursor()
    cursor.execute(
        "INSERT INTO engine_sample BY NAME SELECT TIMESTAMPTZ '2026-02-01 00:00:00Z' + to_seconds(i) AS ts, "
        "i AS monotonic_seconds, 'h' AS host, 'vllm-8000' AS engine_id, 'e' AS epoch_id, 'ready' AS state, "
        "i AS generation_tokens_total, i AS generation_live_tokens_total FROM range($rows) AS r(i)",
        {"rows": rows},
    ).fetchall()
    cursor.close()


def test_only_this_user_can_open_the_socket(writer: Writer, settings: Settings) -> None:
    server = serve(writer, settings, dict)
    told = _announce(server, settings)
    assert told.socket is not None
    modes = {
        name: stat.S_IMODE(path.stat().st_mode)
        for name, path in {
            "folder": settings.run_folder,
            "socket": Path(told.socket),
            "file": settings.run_folder / address.FILE_NAME,
        }.items()
    }
    assert modes == {"folder": 0o700, "socket": 0o600, "file": 0o600}
    assert address.read(settings.run_folder) == told
    server.stop()
    assert not Path(told.socket).exists()
    address.remove(settings.run_folder)
    assert address.read(settings.run_folder) is None


def test_health_tells_of_the_writer_and_what_the_collector_adds(writer: Writer, settings: Settings) -> None:
    server = serve(writer, settings, lambda: {"looked_for": ["vllm"], "web_server_pid": 7})
    told = _announce(server, settings)
    writer.put([engine()])
    writer.flush()
    client = StoreClient(settings)
    health = client.health()
    client.close()
    server.stop()
    assert (health["pid"], health["version"]) == (told.pid, told.version)
    assert (health["looked_for"], health["web_server_pid"]) == (["vllm"], 7)
    assert (health["writer"]["state"], health["writer"]["detail"], health["writer"]["rows_written"]) == ("ok", None, 1)
    assert datetime.fromisoformat(health["started"]).tzinfo is not None


def test_without_unix_sockets_a_token_is_needed(
    writer: Writer, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "UNIX_SOCKETS", False)
    server = serve(writer, settings, dict)
    told = _announce(server, settings)
    assert told.socket is None
    assert told.token_file is not None
    token_file = Path(told.token_file)
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    client = StoreClient(settings)
    assert client.query("status").num_rows == 1
    client.close()
    base = f"http://127.0.0.1:{told.port}"
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token_file.read_text()}):
        for method, path in (
            ("POST", "/query/status"),
            ("POST", "/command/report_delete"),
            ("GET", "/healthz"),
            ("GET", "/export/event.csv"),
        ):
            assert httpx2.request(method, base + path, headers=headers, trust_env=False).status_code == 401
    server.stop()
    assert not token_file.exists()


def test_a_long_data_folder_still_gets_a_socket(tmp_path: Path) -> None:
    # sun_path holds 108 bytes on Linux (unix(7)).
    settings = Settings(data=tmp_path / ("d" * 120), host=HOST)
    writer = Writer(settings.store_path, settings.store)
    server = serve(writer, settings, dict)
    told = _announce(server, settings)
    assert told.socket is not None
    assert stat.S_IMODE(Path(told.socket).parent.stat().st_mode) == 0o700
    client = StoreClient(settings)
    assert client.query("status").num_rows == 1
    client.close()
    server.stop()
    writer.close()
    assert not Path(told.socket).parent.exists()


def test_nobody_answers(settings: Settings) -> None:
    client = StoreClient(settings)
    with pytest.raises(StoreUnavailableError, match="python -m collectors run"):
        client.query("status")
    settings.run_folder.mkdir(parents=True)
    gone = Address(1, "0", datetime.now(UTC), "test", socket=str(settings.run_folder / "store.sock"))
    address.write(settings.run_folder, gone)
    for ask in (client.health, lambda: client.query("status"), lambda: client.export_csv("event", None, None, None)):
        with pytest.raises(StoreUnavailableError, match="python -m collectors run"):
            ask()
    (settings.run_folder / address.FILE_NAME).write_text("{")
    with pytest.raises(StoreError, match="restart the collector"):
        client.health()


def test_a_client_finds_a_collector_that_was_restarted(writer: Writer, settings: Settings) -> None:
    client = StoreClient(settings)
    for _ in range(2):
        server = serve(writer, settings, dict)
        _announce(server, settings)
        assert client.query("status").num_rows == 1
        server.stop()
        with pytest.raises(StoreUnavailableError):
            client.query("status")
    client.close()


def test_a_socket_that_a_killed_collector_left_is_replaced(writer: Writer, settings: Settings) -> None:
    settings.run_folder.mkdir(parents=True)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(settings.run_folder / "store.sock"))
    left.close()
    server = serve(writer, settings, dict)
    _announce(server, settings)
    client = StoreClient(settings)
    assert client.query("status").num_rows == 1
    client.close()
    server.stop()


def test_a_read_that_takes_too_long_is_stopped(writer: Writer) -> None:
    _many_samples(writer, 400_000)
    impatient = LocalStore(writer, StoreSettings(read_timeout_seconds=0.01))
    with pytest.raises(StoreBusyError, match=r"stopped after 0\.01 s"):
        impatient.query("engine_series", SPAN)
    # The connection is as good as before, for writing and for reading.
    writer.put([sample(0)])
    writer.flush()
    patient = LocalStore(writer, StoreSettings(read_timeout_seconds=100))
    assert patient.query("engine_series", SPAN).num_rows > 0


def test_a_read_without_a_turn_is_told_so_and_the_next_one_gets_it(writer: Writer) -> None:
    _many_samples(writer, 400_000)
    reader = Reader(
        writer.path, StoreSettings(read_limit=1, read_timeout_seconds=100), writer.cursor, turn_wait_seconds=0.0
    )
    slow = threading.Thread(target=reader.query, args=("engine_series", SPAN))
    slow.start()

    def refused() -> bool:
        try:
            reader.query("epochs")
        except StoreBusyError as error:
            return "did not get a turn" in str(error)
        assert slow.is_alive(), "no read was refused while another one ran"
        return False

    until(refused, what="a read that is refused")
    slow.join()
    assert reader.query("epochs").num_rows == 1


def test_reads_in_many_threads_while_rows_are_written(writer: Writer, settings: Settings) -> None:
    server = serve(writer, settings, dict)
    _announce(server, settings)
    client = StoreClient(settings)
    writer.put([engine(), epoch()])
    counts: list[int] = []
    failures: list[StoreError] = []

    def read() -> None:
        try:
            counts.extend(client.query("status").to_pylist()[0]["rows_engine_sample"] for _ in range(10))
        except StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for second in range(20):
        writer.put([sample(second)])
        writer.flush()
    for thread in threads:
        thread.join()
    client.close()
    server.stop()
    assert failures == []
    assert len(counts) == 40
    assert all(0 <= count <= 20 for count in counts)


def test_unknown_routes_and_bodies_are_refused(writer: Writer, settings: Settings) -> None:
    server = serve(writer, settings, dict)
    told = _announce(server, settings)
    with httpx2.Client(transport=httpx2.HTTPTransport(uds=told.socket), base_url="http://collector") as http:
        assert http.get("/query/status").status_code == 405
        assert http.post("/sql", content="SELECT 1").status_code == 404
        for body in ("[1]", "{", "x" * 70_000, "\xff"):
            answer = http.post("/query/status", content=body)
            assert (answer.status_code, answer.json()["error"]) == (400, "UnknownQueryError")
        assert http.get("/export/event.csv", params={"from": "yesterday"}).status_code == 400
    server.stop()
