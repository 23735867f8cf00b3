"""The engines that are known, in the order in which an unknown endpoint is asked."""

from __future__ import annotations

from collectors.engines.base import Adapter
from collectors.engines.llamacpp import LlamaCpp
from collectors.engines.ollama import Ollama
from collectors.engines.sglang import Sglang
from collectors.engines.tgi import Tgi
from collectors.engines.vllm import Vllm

# llama.cpp first: its first question (/props) is harmless everywhere, while /metrics is not harmless there.
# Then those that recognise themselves without /metrics; a stranger is asked all of it, backing off.
ADAPTERS: tuple[Adapter, ...] = (LlamaCpp(), Ollama(), Vllm(), Sglang(), Tgi())
