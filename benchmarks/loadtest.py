"""
What the load generator can take in: `python -m benchmarks.loadtest`.

- CPU time of a streamed chunk, ours against `vllm bench serve`, AIPerf and guidellm, on the same mock server with the
  same prompts' length and number of streams. Each client runs with few and with many requests, in turns; the
  difference of its least CPU times (user and system, of all its processes) over that of the chunks leaves start-up out.
- Latency that the client adds: from a chunk's own record of when it was written to our time stamp of it, at 1, 64 and
  512 streams that all get a chunk in the same moment.

vLLM is looked for as the interpreter in VLLM_PYTHON, or as `vllm` on the PATH; AIPerf and guidellm as the
programs in AIPERF and GUIDELLM, or as `aiperf` and `guidellm` on the PATH, best in virtual environments of their own.
What is not there is left out, and said so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.caller import Caller
from loadtest.dialect import Dialect
from loadtest.driver import Driver
from loadtest.loop import run_loop
from loadtest.meter import ceiling_chunks_per_second, raise_connection_limit
from loadtest.pool import Pool
from loadtest.prompts import Prompts, TokenModel
from loadtest.spec import EndpointSpec, InputSpec, Limits, Slo
from loadtest.statistics import summarise

STREAMS, TOKENS, PROMPT_TOKENS, EACH_SECONDS = 64, 200, 100, 0.02
FEW, MANY = 64, 768  # requests
ROUNDS = 2
RATIO_BUDGET = 2.0
LATENCIES = ((1, 0.02, 100), (64, 0.02, 100), (512, 0.2, 20))  # streams, seconds between chunks, chunks

TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **{f"w{n}": n + 1 for n in range(1000)}}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


@contextmanager
def mock(seconds: float) -> Iterator[str]:
    """A mock engine in a process of its own; gives its URL."""
    command = [sys.executable, "-m", "benchmarks.mock_engine", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User and system time of a command and all its children. Raises when it fails."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise RuntimeError(output.read().decode("utf-8", "replace")[-2000:])
    return usage.ru_utime + usage.ru_stime


def per_chunk(commands: dict[int, list[str]], environment: dict[str, str]) -> float:
    """CPU seconds of one more chunk, from the quickest run of each: starting takes some clients many times longer."""
    rounds = [{n: cpu_seconds(command, environment) for n, command in commands.items()} for _ in range(ROUNDS)]
    few, many = (min(cost[requests] for cost in rounds) for requests in (FEW, MANY))
    return (many - few) / ((MANY - FEW) * TOKENS)


def ours(url: str) -> float:
    """Our client."""
    return per_chunk(
        {n: [sys.executable, "-m", "benchmarks.loadtest", "client", url, str(n)] for n in (FEW, MANY)}, {**os.environ}
    )


def vllm(url: str, folder: Path) -> float | None:
    """`vllm bench serve`, or None where it is not installed."""
    python, program = os.environ.get("VLLM_PYTHON"), shutil.which("vllm")
    if python is None and program is None:
        return None
    begin = [python, "-m", "vllm.entrypoints.cli.main"] if python else [str(program)]
    interpreter = python or _interpreter(Path(str(program)))
    subprocess.run([interpreter, "-c", TOKENIZER, str(folder)], check=True, capture_output=True)
    arguments = [
        "bench", "serve", "--backend", "openai", "--base-url", url, "--model", "mock", "--tokenizer", str(folder),
        "--dataset-name", "random", "--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS),
        "--max-concurrency", str(STREAMS), "--ignore-eos", "--disable-tqdm", "--ready-check-timeout-sec", "0",
    ]  # fmt: skip
    environment = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return per_chunk({n: [*begin, *arguments, "--num-prompts", str(n)] for n in (FEW, MANY)}, environment)


def aiperf(url: str, folder: Path) -> float | None:
    """`aiperf profile`, or None where it is not installed."""
    program = os.environ.get("AIPERF") or shutil.which("aiperf")
    if program is None:
        return None
    tokenizer = folder / "tokenizer"
    subprocess.run([_interpreter(Path(program)), "-c", TOKENIZER, str(tokenizer)], check=True, capture_output=True)
    arguments = [
        "profile", "--url", url, "--model", "mock", "--endpoint-type", "completions", "--streaming",
        "--tokenizer", str(tokenizer), "--isl", str(PROMPT_TOKENS), "--osl", str(TOKENS), "--use-server-token-count",
        "--concurrency", str(STREAMS), "--extra-inputs", "ignore_eos:true", "--ui-type", "none",
        "--no-gpu-telemetry", "--no-server-metrics", "--artifact-dir", str(folder / "artifacts"),
    ]  # fmt: skip
    return per_chunk({n: [program, *arguments, "--request-count", str(n)] for n in (FEW, MANY)}, {**os.environ})


def guidellm(url: str, folder: Path) -> float | None:
    """`guidellm run` (0.8 or newer), or None where it is not installed."""
    program = os.environ.get("GUIDELLM") or shutil.which("guidellm")
    if program is None:
        return None
    tokenizer, prompts = folder / "tokenizer", folder / "prompts.jsonl"
    subprocess.run([_interpreter(Path(program)), "-c", TOKENIZER, str(tokenizer)], check=True, capture_output=True)
    # Prompts of its own making are English, of which this tokenizer knows no word: they would be empty.
    words = (" ".join(f"w{(7 * n + k) % 1000}" for k in range(PROMPT_TOKENS)) for n in range(MANY))
    prompts.write_text("".join(json.dumps({"prompt": w, "output_tokens_count": TOKENS}) + "\n" for w in words))
    arguments = [
        "run", "--backend", f"kind=openai_http,target={url},model=mock,validate_backend=false,"
        "request_format=/v1/completions", "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
        "--profile", f"kind=concurrent,streams={STREAMS}", "--data", f"kind=json_file,path={prompts}",
        "--output", f"kind=json,path={folder / 'result.json'}", "--disable-console", "--constraint",
    ]  # fmt: skip
    commands = {n: [program, *arguments, f"kind=max_requests,count={n}"] for n in (FEW, MANY)}
    return per_chunk(commands, {**os.environ, "HF_HUB_OFFLINE": "1"})


def _interpreter(program: Path) -> str:
    """The Python that a console script names in its first line."""
    return program.read_text().partition("\n")[0].removeprefix("#!").strip()


def client(url: str, requests: int) -> None:
    """One stage as the worker drives it: prompts, requests, reading of the answers, statistics."""

    async def run() -> None:
        caller = Caller(EndpointSpec(url=url), Limits())
        caller.model, caller.dialect, caller.tokens = "mock", Dialect(frozenset({"include_usage"})), TokenModel()
        prompts = Prompts(InputSpec(tokens=PROMPT_TOKENS), TOKENS, 1, os.urandom(32))
        driver = Driver(
            caller, lambda n: prompts.make("0", "0", n, caller.tokens), asyncio.Event(), most_requests=requests
        )
        window = await driver.closed(STREAMS)
        summary = summarise(driver.timings, window, Slo())
        assert summary.output_tokens == requests * TOKENS, summary
        caller.pool.close()

    run_loop(run())


async def added_latency(url: str, streams: int, chunks: int) -> array[float]:
    """Seconds from the writing of each chunk to its time stamp, sorted."""
    body = json.dumps({"prompt": "w " * PROMPT_TOKENS, "max_tokens": chunks}).encode()
    request = b"POST /v1/completions HTTP/1.1\r\nHost: mock\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    pool = Pool(url, 2**40, 600.0)
    await pool.open(streams)
    exchanges = await asyncio.gather(*(pool.exchange(request) for _ in range(streams)))
    late = array("d")
    for exchange in exchanges:
        for at, piece in zip(exchange.arrivals, exchange.pieces, strict=True):
            _, found, rest = piece.partition(b'"sent":')
            if found:
                late.append(at - float(rest.partition(b"}")[0]))
    pool.close()
    return array("d", sorted(late))


def main() -> int:
    """Print the table; exit 1 when a budget is exceeded."""
    failed = False
    with tempfile.TemporaryDirectory() as folder, mock(EACH_SECONDS) as url:
        mine = ours(url)
        print(f"{'a streamed chunk, our client':42} {mine * 1e6:8.1f} us of CPU: {1 / mine:,.0f} chunks/s and core")
        for name, theirs in (
            ("vllm bench serve", vllm(url, Path(folder) / "vllm")),
            ("aiperf", aiperf(url, Path(folder) / "aiperf")),
            ("guidellm", guidellm(url, Path(folder) / "guidellm")),
        ):
            if theirs is None:
                print(f"{name}: not installed, so there is no ratio")
                continue
            ratio = theirs / mine
            print(f"{f'a streamed chunk, {name}':42} {theirs * 1e6:8.1f} us of CPU: {1 / theirs:,.0f}/s")
            print(f"{f'ratio to {name}':42} {ratio:8.1f}x  (budget {RATIO_BUDGET:g}x)")
            failed = failed or ratio < RATIO_BUDGET
    raise_connection_limit()
    run_loop(latencies())
    return int(failed)


async def latencies() -> None:
    """Print the ceiling and the added latencies."""
    ceiling = await ceiling_chunks_per_second()
    print(f"{'its own ceiling, as every run measures it':42} {ceiling:8,.0f} chunks/s")
    for streams, seconds, chunks in LATENCIES:
        with mock(seconds) as url:
            late = await added_latency(url, streams, chunks)
        p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
        print(
            f"{f'added latency, {streams} streams':42} {p50 * 1e3:8.3f} ms  p99 {p99 * 1e3:.3f} ms, "
            f"greatest {late[-1] * 1e3:.3f} ms, {streams / seconds:,.0f} chunks/s"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
