"""Why a figure of a window is not there: what an engine does not offer, has switched off, or had no reason to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from comparison.windows import Figure
from store.model import Offer
from views.cards import METHODS, title_of

Row = Mapping[str, Any]
# key of a measure -> canonical quantity that it is made of
QUANTITIES = {
    "generation": "generation_tokens_total",
    "generation_working": "generation_tokens_total",
    "prompt": "prompt_tokens_total",
    "requests": "requests_finished_total",
    "running": "requests_running",
    "waiting": "requests_waiting",
    "prefix_hits": "prefix_cache_hit_tokens_total",
    "preemptions": "preemptions_total",
    "kv_used": "kv_used_fraction",
    "ttft": "ttft_seconds",
    "tpot": "tpot_seconds",
    "itl": "itl_seconds",
    "e2e": "e2e_seconds",
}
CLIENT_ONLY = frozenset({"user_speed", "failed"})


@dataclass(frozen=True, slots=True)
class Absences:
    """What is known about one window that explains what is missing in it."""

    summary: Row  # of the query `window_summary`
    offers: Mapping[str, Row]  # by quantity, of the newest life
    has_devices: bool

    def explain(self, key: str, figure: Figure) -> Figure:
        """The figure as it is, or with the reason why it has no value."""
        if figure.value is not None:
            return figure
        absent, reason = self._why(key, figure)
        return replace(figure, absent=absent, source=reason)

    def _why(self, key: str, figure: Figure) -> tuple[str, str]:
        if not self.summary["samples"]:
            return "not sampled", "No sample of this engine lies in this window."
        quantity = QUANTITIES.get(key) or QUANTITIES.get(key.rsplit("_", 1)[0])
        if quantity is not None:
            return self._by_offer(key, quantity)
        if key in ("weights", "kv_reserved"):
            return "not known", figure.source or "What its memory is made of was not worked out."
        if key.startswith("host_memory") or key == "cpu":
            return "not known", "The engine's processes can't be seen from here."
        return self._of_devices(key)

    def _by_offer(self, key: str, quantity: str) -> tuple[str, str]:
        offer = self.offers.get(quantity)
        engine = title_of(str(self.summary["kind"]))
        if offer is None:
            return "not known", "No sample has told whether the engine offers it."
        reason = " ".join(str(offer[name]) for name in ("reason", "remedy") if offer.get(name))
        match offer["offer"]:
            case Offer.NOT_OFFERED:
                return f"not offered by {engine}", reason or "The engine has no such metric."
            case Offer.DISABLED:
                return "disabled", reason or "Switched off in the engine's configuration."
            case Offer.OFFERED if key == "generation_working":
                return "no request ran", "The engine was idle in every sample of this window."
            case Offer.OFFERED if quantity.endswith("_seconds"):
                return "none observed", f"Read from {offer['source']}; no request gave one in this window."
            case Offer.OFFERED:
                return "no figure", f"Read from {offer['source']}, which had no value in this window."
            case _:
                return "not known", reason or "No sample has told whether the engine offers it."

    def _of_devices(self, key: str) -> tuple[str, str]:
        if not self.has_devices:
            return "no GPU", "This host has no GPU that can be seen; see Sources."
        if not self.summary["device_ids"]:
            return "none held", "No process of this engine held memory of a GPU in this window."
        if key == "joules_per_token" and self.summary["energy_joules"] is not None:
            return "no token", "The engine generated nothing, so that there is no token to divide by."
        return "not told", "The driver of its GPU does not tell it."


def method_words(method: object) -> str:
    """How a memory figure was measured, as a sentence."""
    return "; ".join(METHODS.get(part, f"method {part}") for part in str(method or "none").split("+"))
