"""Fields of a Hugging Face ``config.json``, read with a check: a message names the field and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calculator.model import MalformedModelError, MissingFactError

LARGEST = 1 << 40  # no width, count or length of a model comes near


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object of a configuration. `path` is how messages name it ("config.json", "... text_config")."""

    values: Mapping[str, object]
    path: str

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self.values.get(name) is not None

    def integer(self, *names: str, default: int | None = None, smallest: int = 0) -> int:
        """
        Give the first present one of `names`.

        :raises MissingFactError: none is present and there is no default
        :raises MalformedModelError: not a whole number, or out of bounds
        """
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int):
                raise MalformedModelError(f"{self.path}: {name} is {value!r}; a whole number is needed")
            if not smallest <= value <= LARGEST:
                raise MalformedModelError(f"{self.path}: {name} is {value}; it must be at least {smallest}")
            return value
        if default is None:
            raise MissingFactError(f"{self.path}: {' or '.join(names)} is missing; without it no size can be computed")
        return default

    def size(self, *names: str, default: int | None = None) -> int:
        """Like `integer`, but at least 1."""
        return self.integer(*names, default=default, smallest=1)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Give a boolean field."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if not isinstance(value, bool):
                raise MalformedModelError(f"{self.path}: {name} is {value!r}; true or false is needed")
            return value
        return default

    def text(self, name: str) -> str | None:
        """Give a string field, or None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise MalformedModelError(f"{self.path}: {name} is {value!r}; a string is needed")
        return value

    def number(self, name: str, default: float) -> float:
        """Give a finite number."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST:
            raise MalformedModelError(f"{self.path}: {name} is {value!r}; a number of 0 or more is needed")
        return float(value)

    def items(self, name: str) -> list[object] | None:
        """Give a list field, or None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise MalformedModelError(f"{self.path}: {name} is {value!r}; a list is needed")
        return list(value)

    def integers(self, name: str, length: int | None = None) -> list[int] | None:
        """Give a list of whole numbers; `length` checks it."""
        found = self.items(name)
        if found is None:
            return None
        if length is not None and len(found) != length:
            raise MalformedModelError(f"{self.path}: {name} has {len(found)} entries for {length} layers")
        for value in found:
            if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= LARGEST:
                raise MalformedModelError(f"{self.path}: {name} holds {value!r}; whole numbers are needed")
        return [value for value in found if isinstance(value, int)]

    def names(self, name: str, length: int | None = None) -> list[str] | None:
        """Give a list of strings; `length` checks it."""
        found = self.items(name)
        if found is None:
            return None
        if length is not None and len(found) != length:
            raise MalformedModelError(f"{self.path}: {name} has {len(found)} entries for {length} layers")
        for value in found:
            if not isinstance(value, str):
                raise MalformedModelError(f"{self.path}: {name} holds {value!r}; strings are needed")
        return [value for value in found if isinstance(value, str)]

    def inner(self, name: str) -> Fields | None:
        """Give an object field, or None where it is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise MalformedModelError(f"{self.path}: {name} is {value!r}; an object is needed")
        return Fields(value, f"{self.path} {name}")
