"""
The process table against the kernel's own files.

Expected values: the pids and titles that the stand-ins report of themselves, /proc/PID/stat (proc(5)),
and `ss`-like facts that the test made itself (which address and port it bound).
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from collectors.processes import Process, ProcessSnapshot, ProcessTable
from tests.support.processes import STANDIN, Standin, llama_server, vllm
from tests.support.wait import free_port, until

WORKERS = {
    "children": [
        {
            "title": "VLLM::EngineCore",
            "children": [{"title": "VLLM::Worker_TP0"}, {"title": "VLLM::Worker_TP1"}],
        }
    ]
}


@pytest.fixture
def table():
    return ProcessTable()


def standin(plan):
    return Standin([sys.executable, str(STANDIN)], plan)


def test_a_tree_of_three_levels_with_full_titles(tmp_path, table):
    with vllm(tmp_path, ["meta-llama/Llama-3.1-8B"], WORKERS) as engine:
        tree = table.snapshot().tree(engine.pid)
        titles = {process.pid: process.title for process in tree}
        for title in ("VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"):
            assert titles[engine.pids[title]] == title
        assert tree[0].pid == engine.pid
        assert set(titles) == set(engine.pids.values())


def test_a_title_comes_without_the_padding_that_overwrote_the_command_line(tmp_path, table):
    with vllm(tmp_path, ["a-model", "--port", "8000", "--max-model-len", "2048"], WORKERS) as engine:
        raw = Path(f"/proc/{engine.pids['VLLM::EngineCore']}/cmdline").read_bytes()
        assert raw.rstrip(b"\0 ") == b"VLLM::EngineCore"
        assert table.snapshot().get(engine.pids["VLLM::EngineCore"]).arguments == ("VLLM::EngineCore",)
        root = table.snapshot().get(engine.pid)
        given = (str(tmp_path / "vllm"), "serve", "a-model", "--port", "8000", "--max-model-len", "2048")
        assert root.arguments[1:] == given


def test_a_name_longer_than_the_kernel_keeps_is_completed(tmp_path, table):
    link = tmp_path / "text-generation-launcher"
    link.symlink_to(Path(sys.executable).resolve())
    with Standin([str(link), str(STANDIN)], {}, executable=str(link)) as process:
        seen = table.snapshot().get(process.pid)
        assert seen.name == "text-generation-launcher"[:15]  # TASK_COMM_LEN of the kernel is 16 with its NUL
        assert seen.title == "text-generation-launcher"


def test_start_and_parent_are_those_of_the_kernel(tmp_path, table):
    with llama_server(tmp_path, [], {}) as process:
        seen = table.snapshot().get(process.pid)
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(int(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if "btime" in line)
        assert seen.start == pytest.approx(boot + int(fields[19]) / os.sysconf("SC_CLK_TCK"), abs=1.1)
        assert seen.parent_pid == os.getpid()
        assert seen.title == "llama-server"


def test_a_zombie_is_not_a_process_of_the_tree(table):
    with standin({"leave_zombie": True}) as process:

        def zombie():
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            states = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in children]
            return states == ["Z"]

        until(zombie, what="the child to be a zombie")
        assert [seen.pid for seen in table.snapshot().tree(process.pid)] == [process.pid]


def test_a_process_that_became_another_program_is_seen_as_that(tmp_path, table):
    """The pid and its start stay the same over execve(2), so neither can tell that the command line is new."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    os.mkfifo(go)
    shell = subprocess.Popen(["sh", "-c", f"echo > {ready}; read line < {go}; exec sleep 600"])
    try:
        until(ready.exists)
        before = table.snapshot().get(shell.pid)
        assert before.arguments[0] == "sh"
        go.write_text("on\n")
        until(lambda: Path(f"/proc/{shell.pid}/cmdline").read_bytes() == b"sleep\x00600\x00", what="the exec")
        after = table.snapshot().get(shell.pid)
        assert (after.arguments, after.title) == (("sleep", "600"), "sleep")
        assert after.start == before.start
    finally:
        shell.kill()
        shell.wait()


def test_a_new_command_line_under_the_same_name_is_seen_while_the_process_is_young(tmp_path, table):
    """A shell that executes a shell: pid, start and name stay (execve(2)), only the command line is another."""
    ready, go, end = tmp_path / "ready", tmp_path / "go", tmp_path / "end"
    os.mkfifo(go)
    os.mkfifo(end)
    commands = f"echo > {ready}; read line < {go}; exec sh -c 'read line < {end}' vllm-serve"
    shell = subprocess.Popen(["sh", "-c", commands])
    try:
        until(ready.exists)
        before = table.snapshot().get(shell.pid)
        go.write_text("on\n")
        until(lambda: Path(f"/proc/{shell.pid}/cmdline").read_bytes().endswith(b"\0vllm-serve\0"), what="the exec")
        after = table.snapshot().get(shell.pid)
        assert (after.name, after.start) == (before.name, before.start)
        assert after.arguments[-1] == "vllm-serve"
    finally:
        shell.kill()
        shell.wait()


def test_an_ended_process_is_gone_from_the_next_snapshot_and_stays_in_the_old_one(table):
    process = standin({})
    before = table.snapshot()
    process.close()
    assert before.get(process.pid) is not None
    assert table.snapshot().get(process.pid) is None
    assert table.snapshot().tree(process.pid) == ()


def test_orphans_leave_the_tree_of_their_dead_root(table):
    with standin({"children": [{"title": "VLLM::EngineCore"}]}) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        engine.process.wait(10)
        snapshot = table.snapshot()
        assert snapshot.tree(engine.pid) == ()
        assert snapshot.get(engine.pids["VLLM::EngineCore"]).parent_pid != engine.pid


def test_processes_that_come_and_go_while_the_table_is_read(table):
    """A crowd of processes that end all the time: the kernel's listing is out of date before it has been read."""
    crowd = subprocess.Popen(["sh", "-c", "while :; do /bin/true & /bin/true & /bin/true; done"])
    try:
        for _ in range(40):
            assert table.snapshot().get(os.getpid()) is not None
    finally:
        crowd.kill()
        crowd.wait()


def test_a_younger_process_with_the_pid_of_the_dead_parent_gets_no_children():
    """Pids are used again (fork(2)); the kernel can't be made to do so here, so the table is written by hand."""
    child = Process(200, 100, "VLLM::Worker", ("VLLM::Worker",), start=50.0)
    newcomer = Process(100, 1, "bash", ("bash",), start=90.0)
    snapshot = ProcessSnapshot({100: newcomer, 200: child})
    assert snapshot.tree(100) == (newcomer,)
    assert list(snapshot.line(200)) == [child]


def test_the_topmost_engine_above_a_process(tmp_path, table):
    with vllm(tmp_path, ["a-model"], WORKERS) as engine:
        snapshot = table.snapshot()

        def is_engine(process):
            return process.title.startswith("VLLM::") or "serve" in process.arguments

        assert snapshot.root_of(engine.pids["VLLM::Worker_TP1"], is_engine).pid == engine.pid
        assert snapshot.root_of(os.getpid(), is_engine) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_listening_sockets_with_their_owner(table, address):
    port = free_port()
    with standin({"listen": [[address, port]]}) as process:
        found = [s for s in table.snapshot(sockets=True).sockets if s.port == port]
        assert [(s.address, s.pid) for s in found] == [(address, process.pid)]


def test_sockets_that_open_move_and_close_are_seen_by_the_same_table(table):
    """One table over time: a listing that is kept must not outlive what it lists."""
    port = free_port()

    def owners():
        return [s.pid for s in table.snapshot(sockets=True).sockets if s.port == port]

    assert owners() == []
    for _ in range(2):
        with standin({"listen": [["127.0.0.1", port]]}) as process:
            assert owners() == [process.pid]
            assert owners() == [process.pid]
        assert owners() == []


def test_a_socket_that_outlives_its_owner_gets_another_one(table):
    """A server and its forked child hold one socket; when one of them is killed the other still listens (fork(2))."""
    port = free_port()

    def owners():
        return {s.pid for s in table.snapshot(sockets=True).sockets if s.port == port}

    with standin({"listen": [["127.0.0.1", port]], "fork_after_listening": {"key": "worker"}}) as server:
        (first,) = owners()
        os.kill(first, signal.SIGKILL)
        (other,) = set(server.pids.values()) - {first}
        until(lambda: owners() == {other}, what="the other holder of the socket")


def test_a_recent_snapshot_is_given_again_only_when_it_has_what_is_asked_for(table):
    first = table.snapshot()
    assert table.snapshot(max_age_seconds=60) is first
    with_sockets = table.snapshot(sockets=True, max_age_seconds=60)
    assert with_sockets.sockets is not None
    assert table.snapshot(max_age_seconds=60) is with_sockets
    assert table.snapshot() is not with_sockets


def test_where_there_is_no_proc_psutil_reads_the_same_table(tmp_path, table, monkeypatch):
    """As on macOS: the portable way must find what the Linux way finds."""
    with vllm(tmp_path, ["a-model"], WORKERS) as engine:
        linux = table.snapshot().tree(engine.pid)
        monkeypatch.setattr(psutil, "LINUX", False)
        portable = ProcessTable().snapshot().tree(engine.pid)
        assert [(p.pid, p.parent_pid, p.arguments) for p in portable] == [
            (p.pid, p.parent_pid, p.arguments) for p in linux
        ]
        assert [p.title for p in portable[1:]] == [p.title for p in linux[1:]]
        assert [p.start for p in portable] == pytest.approx([p.start for p in linux], abs=1.1)


def test_where_only_root_may_list_all_sockets_the_own_ones_are_found(table, monkeypatch):
    """macOS denies the listing of everybody's sockets (psutil's documentation of net_connections)."""

    def denied(kind):
        raise psutil.AccessDenied

    port = free_port()
    with standin({"listen": [["127.0.0.1", port]]}) as process:
        monkeypatch.setattr(psutil, "net_connections", denied)
        snapshot = table.snapshot(sockets=True)
        assert not snapshot.sockets_complete
        assert [(s.address, s.pid) for s in snapshot.sockets if s.port == port] == [("127.0.0.1", process.pid)]
