"""The engines that are known, in the order in which an unknown endpoint is asked."""

from __future__ import annotations

from collectors.engines.base import Adapter
from collectors.engines.llamacpp import LlamaCpp
from collectors.engines.vllm import Vllm

# llama.cpp first: its first question (/props) is harmless everywhere, while /metrics is not harmless there.
ADAPTERS: tuple[Adapter, ...] = (LlamaCpp(), Vllm())
