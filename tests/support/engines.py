"""
Whole engines as real processes: real command lines, process titles, children and sockets, and the answers of
tests/fixtures/payloads. Each writes down what it was asked, and its answers can be changed while it runs.

The shapes are those of the engines' source: SGLang's titles (srt/managers, `setproctitle("sglang::scheduler...")`),
TGI's launcher with a router and Python shards (launcher/src/main.rs), Ollama's and the llama.cpp router's
`llama-server` children (llm/llama_server.go, tools/server/server-models.cpp), vLLM's API servers and data-parallel
engine cores (vllm/v1/utils.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.engine_server import PAYLOADS, TEXT
from tests.support.processes import Plan, Standin, llama_server, llama_server_child, ollama, program, script, vllm
from tests.support.wait import free_port

Answers = dict[str, tuple[int, str, str]]
JSON = "application/json"
ROUTER_PROPS = {
    "role": "router",
    "max_instances": 4,
    "models_autoload": True,
    "model_alias": "llama-server",
    "model_path": "none",
    "default_generation_settings": {"n_ctx": 0},
    "build_info": "b11434-abcdef0",
}  # the fields of a live router of 0.6.0-dev


def file(name: str, status: int = 200) -> tuple[int, str, str]:
    """The answer with the body of a payload."""
    return status, JSON if name.endswith(".json") else TEXT, (PAYLOADS / name).read_text()


def document(value: Any, status: int = 200) -> tuple[int, str, str]:
    """The answer with a JSON body."""
    return status, JSON, json.dumps(value)


@dataclass
class Script:
    """What one server answers and what it was asked; both are files that its process shares."""

    folder: Path
    name: str

    @property
    def plan(self) -> Plan:
        return {"script": str(self._answers), "record": str(self._record)}

    @property
    def _answers(self) -> Path:
        return self.folder / f"{self.name}.answers.json"

    @property
    def _record(self) -> Path:
        return self.folder / f"{self.name}.requests"

    @property
    def requests(self) -> list[str]:
        """`METHOD path` of every request so far."""
        return self._record.read_text().splitlines() if self._record.exists() else []

    def answer(self, answers: Mapping[str, tuple[int, str, str]]) -> None:
        """Replace all answers, at once."""
        new = self._answers.with_suffix(".new")
        new.write_text(json.dumps(answers))
        new.replace(self._answers)


@dataclass
class Engine:
    """A running engine. `scripts` has its own answers under "root" and those of its children by their keys."""

    standin: Standin
    port: int
    scripts: dict[str, Script]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.standin.pid

    @property
    def pids(self) -> dict[str, int]:
        return self.standin.pids

    @property
    def requests(self) -> list[str]:
        return [line for script in self.scripts.values() for line in script.requests]

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.standin.close()


def _script(folder: Path, name: str, answers: Answers) -> Script:
    made = Script(folder, name)
    made.answer(answers)
    return made


SGLANG: Answers = {
    "/model_info": file("sglang_model_info.json"),
    "/v1/models": document(
        {"data": [{"id": "Qwen/Qwen2.5-7B-Instruct", "owned_by": "sglang", "max_model_len": 32768}]}
    ),
    "/server_info": file("sglang_server_info_excerpt.json"),
    "/metrics": file("sglang_0.5.23.prom"),
}


def sglang(folder: Path, *, port: int | None = None, answers: Answers = SGLANG, tensor_parallel: int = 2) -> Engine:
    """`python -m sglang.launch_server` with a scheduler a GPU and a detokenizer."""
    port = port or free_port()
    package = folder / "sglang"
    package.mkdir(exist_ok=True)
    script(package, "launch_server.py")
    made = _script(folder, "sglang", answers)
    titles = [f"sglang::scheduler_TP{rank}" for rank in range(tensor_parallel)]
    plan = {
        **made.plan,
        "listen": [["127.0.0.1", port]],
        "children": [{"title": title, "listen": [["127.0.0.1", free_port()]]} for title in titles]
        + [{"title": "sglang::detokenizer"}],
    }
    argv = [sys.executable, "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen2.5-7B-Instruct", "--tp-size"]
    argv += [str(tensor_parallel), "--port", str(port), "--enable-metrics"]
    return Engine(Standin(argv, plan, folder=folder), port, {"root": made})


TGI: Answers = {"/info": file("tgi_info.json"), "/metrics": file("tgi_3.3.prom")}


def tgi(folder: Path, *, port: int | None = None, answers: Answers = TGI) -> Engine:
    """`text-generation-launcher` with its router, which holds the port and one for Prometheus, and a Python shard."""
    port = port or free_port()
    made = _script(folder, "tgi", answers)
    router = program(folder, "text-generation-router")
    launcher = program(folder, "text-generation-launcher")
    standin = str(Path(__file__).with_name("standin.py"))
    listen = [["0.0.0.0", port], ["0.0.0.0", free_port()]]
    children = [
        {
            **made.plan,
            "key": "router",
            "listen": listen,
            "executable": router,
            "argv": [router, standin, "--port", str(port)],
        },
        {
            "key": "shard",
            "executable": sys.executable,
            "argv": [sys.executable, script(folder, "text-generation-server"), "serve", "Qwen/Qwen2.5-7B-Instruct"],
        },
    ]
    argv = [launcher, standin, "--model-id", "Qwen/Qwen2.5-7B-Instruct", "--port", str(port)]
    return Engine(Standin(argv, {"children": children}, executable=launcher), port, {"root": made})


OLLAMA: Answers = {"/api/version": file("ollama_api_version.json"), "/api/ps": file("ollama_api_ps.json")}
OLLAMA_IDLE: Answers = OLLAMA | {"/api/ps": file("ollama_api_ps_idle.json")}
LLAMA_SERVER: Answers = {
    "/props": file("llamacpp_0.6.0_props.json"),
    "/v1/models": file("llamacpp_0.6.0_v1_models.json"),
    "/metrics": file("llamacpp_0.6.0_busy.prom"),
    "/slots": file("llamacpp_0.6.0_slots_one_busy.json"),
}
WITHOUT_METRICS: Answers = LLAMA_SERVER | {"/metrics": file("llamacpp_0.6.0_501_metrics_disabled.json", 501)}


def ollama_server(
    folder: Path, *, port: int | None = None, answers: Answers = OLLAMA, child: Answers | None = WITHOUT_METRICS
) -> Engine:
    """`ollama serve` with, unless `child` is None, the llama-server of one loaded model, as Ollama 0.30 starts it."""
    port, inner = port or free_port(), free_port()
    scripts = {"root": _script(folder, "ollama", answers)}
    plan: Plan = {**scripts["root"].plan, "listen": [["127.0.0.1", port]]}
    if child is not None:
        scripts["model"] = _script(folder, "ollama-child", child)
        blob = "/usr/share/ollama/.ollama/models/blobs/sha256-500a1f067a9f"
        words = ["--model", blob, "--port", str(inner), "--host", "127.0.0.1", "--no-webui", "--offline"]
        words += ["-c", "4096", "-np", "1"]
        inside = {**scripts["model"].plan, "key": "model", "server": "llama.cpp", "listen": [["127.0.0.1", inner]]}
        plan["children"] = [llama_server_child(folder, words, inside)]
    environment = {"OLLAMA_HOST": f"127.0.0.1:{port}"}
    return Engine(ollama(folder, plan, environment=environment), port, scripts)


def router_models(child_port: int, **status: Any) -> tuple[int, str, str]:
    """`/models` of the recorded router, its one loaded model at `child_port`; `status` changes that model's."""
    listed = json.loads((PAYLOADS / "llamacpp_0.6.0_router_models_one_loaded.json").read_text())
    at = listed["data"][0]["status"]
    at["args"][at["args"].index("--port") + 1] = str(child_port)
    at.update(status)
    return document(listed)


def of_model(answers: Answers, model: str) -> Answers:
    """What a router answers for one loaded model to queries that load nothing."""
    return {
        f"{path}?model={model}&autoload=false": answer for path, answer in answers.items() if not path.startswith("/v1")
    }


def router_answers(child_port: int) -> Answers:
    refused = file("llamacpp_0.6.0_400_router_no_model.json", 400)
    not_loaded = file("llamacpp_0.6.0_400_router_not_loaded.json", 400)
    return {
        "/props": document(ROUTER_PROPS),
        "/models": router_models(child_port),
        "/v1/models": router_models(child_port),
        "/metrics": refused,
        "/slots": refused,
        **of_model(LLAMA_SERVER, "tiny"),
        **of_model(dict.fromkeys(LLAMA_SERVER, not_loaded), "tinyb"),
    }


def llamacpp_router(folder: Path, *, port: int | None = None) -> Engine:
    """A router that knows two models, of which it has loaded `tiny`: its child has the key "tiny"."""
    port, inner = port or free_port(), free_port()
    made = _script(folder, "router", router_answers(inner))
    inside = {"key": "tiny", "listen": [["127.0.0.1", inner]], "ballast_bytes": 2**20}
    words = [
        "--host",
        "127.0.0.1",
        "--metrics",
        "--port",
        str(inner),
        "--alias",
        "tiny",
        "--model",
        "/models/tiny.gguf",
    ]
    plan = {
        **made.plan,
        "server": "llama.cpp",
        "listen": [["127.0.0.1", port]],
        "children": [llama_server_child(folder, words, inside)],
    }
    arguments = ["--models-dir", "/models", "--metrics", "--port", str(port)]
    return Engine(llama_server(folder, arguments, plan), port, {"root": made})


OLD_PROPS = {
    "default_generation_settings": {"n_ctx": 8192},
    "total_slots": 2,
    "model_path": "/models/old.gguf",
    "chat_template": "{{ messages }}",
    "build_info": "b5300-8733e0cf6",
}  # the fields of 2025-05 (tools/server/server.cpp of 8733e0cf6)
OLD_LLAMA: Answers = {
    "/props": document(OLD_PROPS),
    "/v1/models": document(
        {"data": [{"id": "/models/old.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 8192}}]}
    ),
    "/metrics": file("llamacpp_2025-05_8733e0cf6_kv.prom"),
    "/slots": file("llamacpp_2025-05_slots_old_shape.json"),
}


def old_llamacpp(folder: Path, *, port: int | None = None, answers: Answers = OLD_LLAMA) -> Engine:
    """A llama-server of May 2025."""
    port = port or free_port()
    made = _script(folder, "old-llama", answers)
    plan = {**made.plan, "server": "llama.cpp", "listen": [["127.0.0.1", port]]}
    arguments = ["-m", "/models/old.gguf", "-np", "2", "--metrics", "--slots", "--port", str(port)]
    return Engine(llama_server(folder, arguments, plan), port, {"root": made})


VLLM_DP: Answers = {
    "/version": file("vllm_version.json"),
    "/v1/models": file("vllm_v1_models.json"),
    "/metrics": file("vllm_0.33_dp2_multiproc.prom"),
    "/health": (200, JSON, ""),
}


def vllm_data_parallel(folder: Path, *, port: int | None = None, answers: Answers = VLLM_DP) -> Engine:
    """`vllm serve -dp 2`: an API server child that holds the port, two engine cores with a worker each."""
    port = port or free_port()
    made = _script(folder, "vllm-dp", answers)
    children: Sequence[Plan] = [
        {**made.plan, "title": "VLLM::APIServer_0", "listen": [["0.0.0.0", port]]},
        {"title": "VLLM::DPCoordinator"},
        {"title": "VLLM::EngineCore_DP0", "children": [{"title": "VLLM::Worker_DP0_TP0"}]},
        {"title": "VLLM::EngineCore_DP1", "children": [{"title": "VLLM::Worker_DP1_TP0"}]},
    ]
    arguments = ["Qwen/Qwen2.5-7B-Instruct", "-dp", "2", "--port", str(port)]
    return Engine(vllm(folder, arguments, {"children": list(children)}), port, {"root": made})
