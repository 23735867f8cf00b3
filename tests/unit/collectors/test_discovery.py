"""
Which endpoints are found on this host, with real processes that listen on real sockets.

Expected values are what each stand-in was started with: its pid, its port, its arguments. What else runs
on this machine is left out by looking only at the ports and processes of the test.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import psutil
import pytest

from collectors.discovery import candidates
from collectors.engines import ADAPTERS
from collectors.processes import ProcessTable
from settings import CollectorSettings, Settings, Target
from tests.support.processes import STANDIN, Standin, llama_server, llama_server_child, ollama, program, script, vllm
from tests.support.wait import free_port

SECRET = "sk-not-a-real-key-0123456789"


def look(tmp_path, *, target=(), **collector):
    settings = Settings(data=tmp_path, target=target, collector=CollectorSettings(**collector))
    return candidates(settings, ADAPTERS, ProcessTable().snapshot(sockets=True))


def of(endpoints, *processes):
    return [endpoint for endpoint in endpoints if endpoint.pid in {process.pid for process in processes}]


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("::", "[::1]")],
)
def test_a_listening_engine_is_found_at_an_address_that_can_be_reached(tmp_path, address, host):
    port = free_port()
    with llama_server(tmp_path, ["-m", "a.gguf", "--port", str(port)], {"listen": [[address, port]]}) as engine:
        (endpoint,) = of(look(tmp_path), engine)
        assert endpoint.url == f"http://{host}:{port}"
        assert f"process {engine.pid} listens on" in endpoint.found_by


def test_one_engine_on_both_families_is_one_endpoint(tmp_path):
    port = free_port()
    plan = {"listen": [["::", port], ["0.0.0.0", port]]}
    with llama_server(tmp_path, ["--port", str(port)], plan) as engine:
        assert [endpoint.url for endpoint in of(look(tmp_path), engine)] == [f"http://127.0.0.1:{port}"]


def test_sockets_between_the_processes_of_vllm_are_not_endpoints(tmp_path):
    """The workers' TCP stores and ZMQ ports must never be sent HTTP: only the API port is listed."""
    port, internal = free_port(), [free_port() for _ in range(3)]
    plan = {
        "listen": [["0.0.0.0", port], ["127.0.0.1", internal[0]]],
        "children": [
            {
                "title": "VLLM::EngineCore",
                "listen": [["127.0.0.1", internal[1]]],
                "children": [{"title": "VLLM::Worker_TP0", "listen": [["127.0.0.1", internal[2]]]}],
            }
        ],
    }
    with vllm(tmp_path, ["a-model", "--port", str(port)], plan) as engine:
        endpoints = look(tmp_path, ports=tuple(internal))
        assert [endpoint.url for endpoint in of(endpoints, engine)] == [f"http://127.0.0.1:{port}"]
        assert not {f"http://127.0.0.1:{p}" for p in internal} & {endpoint.url for endpoint in endpoints}


def test_an_api_server_child_is_an_endpoint_of_its_root(tmp_path):
    """With data parallelism the children `VLLM::APIServer_n` serve the port (engines: vLLM with DP > 1)."""
    port = free_port()
    plan = {
        "children": [{"title": "VLLM::APIServer_0", "listen": [["0.0.0.0", port]]}, {"title": "VLLM::EngineCore_DP0"}]
    }
    with vllm(tmp_path, ["a-model", "-dp", "2", "--port", str(port)], plan) as engine:
        (endpoint,) = of(look(tmp_path), engine)
        assert (endpoint.url, endpoint.pid) == (f"http://127.0.0.1:{port}", engine.pid)


def test_a_port_that_stands_in_a_configuration_file_is_found_by_the_socket(tmp_path):
    port = free_port()
    with vllm(tmp_path, ["--config", "vllm.yaml"], {"listen": [["0.0.0.0", port]]}) as engine:
        urls = [endpoint.url for endpoint in of(look(tmp_path), engine)]
        assert urls == [f"http://127.0.0.1:{port}"]


def test_an_engine_that_does_not_listen_yet_is_expected_where_its_arguments_say(tmp_path):
    port = free_port()
    with vllm(tmp_path, ["a-model", f"--port={port}", "--host", "0.0.0.0"], {}) as engine:
        (endpoint,) = of(look(tmp_path), engine)
        assert endpoint.url == f"http://127.0.0.1:{port}"
        assert f"nothing listens on port {port} yet" in endpoint.found_by


def test_the_environment_names_the_port_of_llama_server(tmp_path):
    port = free_port()
    environment = {"LLAMA_ARG_PORT": str(port)}
    with llama_server(tmp_path, ["-m", "a.gguf"], {}, environment=environment) as engine:
        assert [endpoint.url for endpoint in of(look(tmp_path), engine)] == [f"http://127.0.0.1:{port}"]


@pytest.mark.parametrize("arguments", [["a-model", "--headless"], ["a-model", "--uds", "/run/vllm.sock"]])
def test_an_engine_without_a_port_is_not_expected_on_one(tmp_path, arguments):
    with vllm(tmp_path, arguments, {}) as engine:
        assert of(look(tmp_path), engine) == []


def test_a_port_that_another_process_holds_is_not_expected_to_become_the_engines(tmp_path):
    port = free_port()
    with (
        Standin([sys.executable, str(STANDIN)], {"listen": [["127.0.0.1", port]]}),
        vllm(tmp_path, ["a-model", "--port", str(port)], {}) as engine,
    ):
        assert of(look(tmp_path), engine) == []


def test_a_worker_that_outlived_its_root_is_no_engine(tmp_path):
    with vllm(
        tmp_path, ["a-model", "--port", str(free_port())], {"children": [{"title": "VLLM::EngineCore"}]}
    ) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        engine.process.wait(10)
        orphan = engine.pids["VLLM::EngineCore"]
        assert [endpoint for endpoint in look(tmp_path) if endpoint.pid == orphan] == []


def test_the_children_of_a_router_belong_to_the_router(tmp_path):
    port, inner = free_port(), free_port()
    child = llama_server_child(
        tmp_path, ["--port", str(inner), "--alias", "a"], {"key": "model", "listen": [["127.0.0.1", inner]]}
    )
    plan = {"listen": [["127.0.0.1", port]], "children": [child]}
    with llama_server(tmp_path, ["--models-dir", "/models", "--port", str(port)], plan) as router:
        endpoints = look(tmp_path, ports=(inner,))
        assert [endpoint.url for endpoint in of(endpoints, router)] == [f"http://127.0.0.1:{port}"]
        assert [endpoint for endpoint in endpoints if endpoint.url.endswith(f":{inner}")] == []


def test_the_children_of_a_router_are_known_to_it(tmp_path):
    port, inner, starting = (free_port() for _ in range(3))
    arguments = ["--alias", "a", "--port"]
    children = [
        llama_server_child(tmp_path, [*arguments, str(inner)], {"key": "a", "listen": [["127.0.0.1", inner]]}),
        llama_server_child(tmp_path, [*arguments, str(starting), "--hf-token", SECRET], {"key": "b"}),
    ]
    plan = {"listen": [["127.0.0.1", port]], "children": children}
    with llama_server(tmp_path, ["--models-dir", "/models", "--port", str(port)], plan) as router:
        (endpoint,) = of(look(tmp_path), router)
        known = {child.pid: child.url for child in endpoint.children}
        assert known == {router.pids["a"]: f"http://127.0.0.1:{inner}", router.pids["b"]: None}
        assert SECRET not in repr(endpoint)


def test_workers_of_vllm_are_no_children_that_serve(tmp_path):
    port = free_port()
    plan = {"listen": [["127.0.0.1", port]], "children": [{"title": "VLLM::EngineCore"}]}
    with vllm(tmp_path, ["a-model", "--port", str(port)], plan) as engine:
        assert [endpoint.children for endpoint in of(look(tmp_path), engine)] == [()]


@pytest.mark.parametrize("how", ["--port", "-p", "PORT"])
def test_the_port_of_tgi_may_stand_in_three_places(tmp_path, how):
    """launcher/src/main.rs: `#[clap(default_value = "3000", long, short, env)] port`."""
    port = free_port()
    launcher = program(tmp_path, "text-generation-launcher")
    words = [] if how == "PORT" else [how, str(port)]
    environment = {"PORT": str(port)} if how == "PORT" else {}
    argv = [launcher, str(STANDIN), "--model-id", "m", *words]
    with Standin(argv, {}, executable=launcher, environment=environment) as engine:
        assert [endpoint.url for endpoint in of(look(tmp_path), engine)] == [f"http://127.0.0.1:{port}"]


@pytest.mark.parametrize("address", ["0.0.0.0:{}", "http://127.0.0.1:{}/"])
def test_the_environment_names_the_address_of_ollama(tmp_path, address):
    port = free_port()
    with ollama(tmp_path, {}, environment={"OLLAMA_HOST": address.format(port)}) as engine:
        assert [endpoint.url for endpoint in of(look(tmp_path), engine)] == [f"http://127.0.0.1:{port}"]


def test_a_scheduler_that_outlived_sglang_is_no_engine(tmp_path):
    package = tmp_path / "sglang"
    package.mkdir()
    script(package, "launch_server.py")
    argv = [sys.executable, "-m", "sglang.launch_server", "--port", str(free_port())]
    with Standin(argv, {"children": [{"title": "sglang::scheduler_TP0"}]}, folder=tmp_path) as engine:
        assert len(of(look(tmp_path), engine)) == 1
        os.kill(engine.pid, signal.SIGKILL)
        engine.process.wait(10)
        orphan = engine.pids["sglang::scheduler_TP0"]
        assert [endpoint for endpoint in look(tmp_path) if endpoint.pid == orphan] == []


def test_whoever_listens_on_a_named_port_is_a_candidate(tmp_path):
    """As a llama.cpp server inside a plain Python program: nothing in its arguments tells what it is."""
    port, other = free_port(), free_port()
    with Standin([sys.executable, str(STANDIN)], {"listen": [["127.0.0.1", port], ["127.0.0.1", other]]}) as program:
        (endpoint,) = of(look(tmp_path, ports=(port,)), program)
        assert (endpoint.url, endpoint.pid) == (f"http://127.0.0.1:{port}", program.pid)
        assert endpoint.process_start == ProcessTable().snapshot().get(program.pid).start


def test_a_server_with_forked_workers_is_one_candidate_with_the_server_as_its_process(tmp_path):
    port = free_port()
    plan = {"listen": [["127.0.0.1", port]], "fork_after_listening": {"key": "worker"}}
    with Standin([sys.executable, str(STANDIN)], plan) as server:
        found = [e for e in look(tmp_path, ports=(port,)) if e.url.endswith(f":{port}")]
        assert [endpoint.pid for endpoint in found] == [server.pid]


def test_the_collector_never_asks_itself(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        assert [endpoint for endpoint in look(tmp_path, ports=(port,)) if str(port) in endpoint.url] == []


def test_a_configured_target_comes_first_and_once_with_its_process_and_key(tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_KEY", SECRET)
    port = free_port()
    with llama_server(tmp_path, ["--port", str(port)], {"listen": [["0.0.0.0", port]]}) as engine:
        target = Target(url=f"http://localhost:{port}", name="big one", api_key_env="LLAMA_KEY")
        endpoints = look(tmp_path, target=(target,))
        assert endpoints[0] == of(endpoints, engine)[0]
        assert len(of(endpoints, engine)) == 1
        first = endpoints[0]
        assert (first.url, first.name, first.api_key) == (f"http://localhost:{port}", "big one", SECRET)
        assert SECRET not in repr(endpoints)


def test_without_discovery_only_the_targets_are_listed(tmp_path):
    port = free_port()
    with llama_server(tmp_path, ["--port", str(port)], {"listen": [["127.0.0.1", port]]}):
        endpoints = look(tmp_path, target=(Target(url="http://gpu-box:8000"),), discover=False)
        assert [(endpoint.url, endpoint.pid) for endpoint in endpoints] == [("http://gpu-box:8000", None)]


def test_targets_behind_one_proxy_are_all_listed(tmp_path):
    port = free_port()
    with Standin([sys.executable, str(STANDIN)], {"listen": [["127.0.0.1", port]]}):
        targets = tuple(Target(url=f"http://127.0.0.1:{port}/{name}") for name in ("one", "two", "one"))
        urls = [endpoint.url for endpoint in look(tmp_path, target=targets, discover=False)]
        assert urls == [f"http://127.0.0.1:{port}/one", f"http://127.0.0.1:{port}/two"]


def test_a_configured_engine_that_does_not_listen_yet_is_one_endpoint_with_its_process(tmp_path):
    port = free_port()
    with vllm(tmp_path, ["a-model", "--port", str(port)], {}) as engine:
        target = Target(url=f"http://localhost:{port}", name="mine")
        endpoints = [e for e in look(tmp_path, target=(target,)) if e.url.endswith(f":{port}")]
        assert [(e.name, e.pid) for e in endpoints] == [("mine", engine.pid)]


@contextmanager
def docker(tmp_path, *, host_port, container_port, engines=1, serve=None):
    """Engines (vLLM, or the command `serve`) in network namespaces behind docker-proxy, with its arguments."""
    proxy = program(tmp_path, "docker-proxy")
    published = ["-proto", "tcp", "-host-ip", "0.0.0.0", "-host-port", str(host_port)]
    inside = ["-container-ip", "172.17.0.2", "-container-port", str(container_port)]
    with ExitStack() as stack:
        started = []
        for _ in range(engines):
            command = serve or [sys.executable, script(tmp_path, "vllm"), "serve", "a-model"]
            command = ["unshare", "-r", "-n", *command, "--port", str(container_port)]
            unshared = Standin(command, {}, executable=shutil.which("unshare"), folder=tmp_path)
            started.append(stack.enter_context(unshared))
        stack.enter_context(
            Standin([proxy, str(STANDIN), *published, *inside], {"listen": [["0.0.0.0", host_port]]}, executable=proxy)
        )
        yield started


namespaces = pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-r", "-n", "true"]).returncode != 0,
    reason="this user may not make network namespaces",
)


@namespaces
def test_an_engine_in_a_container_is_reached_through_its_published_port(tmp_path):
    port = free_port()
    with docker(tmp_path, host_port=port, container_port=free_port()) as (engine,):
        (endpoint,) = of(look(tmp_path), engine)
        assert (endpoint.url, endpoint.pid) == (f"http://127.0.0.1:{port}", engine.pid)
        assert "reached through" in endpoint.found_by


@namespaces
def test_an_sglang_in_a_container_is_reached_through_its_published_port(tmp_path):
    package = tmp_path / "sglang"
    package.mkdir()
    script(package, "launch_server.py")
    serve = [sys.executable, "-m", "sglang.launch_server", "--model-path", "m", "--host", "0.0.0.0"]
    port = free_port()
    with docker(tmp_path, host_port=port, container_port=free_port(), serve=serve) as (engine,):
        (endpoint,) = of(look(tmp_path), engine)
        assert (endpoint.url, endpoint.pid) == (f"http://127.0.0.1:{port}", engine.pid)


@namespaces
def test_a_configured_target_gets_the_process_in_the_container(tmp_path):
    port = free_port()
    with docker(tmp_path, host_port=port, container_port=free_port()) as (engine,):
        target = Target(url=f"http://localhost:{port}", name="boxed")
        endpoints = [e for e in look(tmp_path, target=(target,)) if e.url.endswith(f":{port}")]
        assert [(e.name, e.pid) for e in endpoints] == [("boxed", engine.pid)]


@namespaces
def test_two_containers_with_the_same_inner_port_are_not_guessed_apart(tmp_path):
    port = free_port()
    with docker(tmp_path, host_port=port, container_port=free_port(), engines=2) as engines:
        endpoints = look(tmp_path, ports=(port,))
        assert of(endpoints, *engines) == []
        assert [e.pid for e in endpoints if e.url == f"http://127.0.0.1:{port}"] == [None]


def test_secrets_of_the_command_line_and_the_environment_are_left_out(tmp_path):
    port = free_port()
    environment = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "VLLM_USE_V1": "1",
        "VLLM_API_KEY": SECRET,
        "LLAMA_ARG_HF_TOKEN": SECRET,
        "HF_TOKEN": SECRET,
        "HOME": "/home/somebody",
    }
    arguments = ["a-model", "--port", str(port), "--api-key", SECRET, "--max-model-len", "2048"]
    with vllm(tmp_path, arguments, {}, environment=environment) as engine:
        (endpoint,) = of(look(tmp_path), engine)
        assert dict(endpoint.process_environment) == {"CUDA_VISIBLE_DEVICES": "0,1", "VLLM_USE_V1": "1"}
        assert "--max-model-len" in endpoint.arguments
        assert SECRET not in repr(endpoint)


def test_where_sockets_of_others_cannot_be_listed_the_usual_ports_are_asked(tmp_path, monkeypatch):
    def denied(kind):
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", denied)
    port = free_port()
    endpoints = look(tmp_path, ports=(port,))
    assert [(e.url, e.pid) for e in endpoints if e.url.endswith(f":{port}")] == [(f"http://127.0.0.1:{port}", None)]
