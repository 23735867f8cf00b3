"""Explanations on hover and keyboard focus, for the pages' own HTML."""

from __future__ import annotations

from html import escape


def tip(text: str, explanation: str) -> str:
    """`text` with an explanation on hover and keyboard focus."""
    return (
        f'<span class="er-tip" tabindex="0" data-tip="{escape(explanation, quote=True)}" '
        f'aria-label="{escape(f"{text}: {explanation}", quote=True)}">{escape(text)}</span>'
    )
