"""The dictionary tells every column that anybody can be given: what there is to tell comes from answers themselves."""

from datetime import timedelta

import duckdb
import pytest

from store.export import EXPORTABLE, SERIES
from store.model import ROW_TYPES
from tests.contract.conftest import Filled
from tests.support.rows import T0

Entry = tuple[str | None, str, str]


@pytest.fixture
def dictionary(filled: Filled) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for row in filled.store.query("dictionary").to_pylist():
        found.setdefault(row["table_name"], []).append((row["column_name"], row["type"], row["comment"]))
    return found


def test_everything_has_its_meaning(dictionary: dict[str, list[Entry]]) -> None:
    assert set(dictionary) >= {row.table for row in ROW_TYPES} | set(EXPORTABLE) | set(SERIES)
    silent = [(table, name) for table, entries in dictionary.items() for name, _, comment in entries if not comment]
    assert silent == []


def test_a_table_comes_before_its_columns_and_says_what_it_is(dictionary: dict[str, list[Entry]]) -> None:
    assert {entries[0][0] for entries in dictionary.values()} == {None}
    assert dictionary["engine_sample"][0][1] == "table"
    assert dictionary["engine_hours"][0][1] == "view"
    assert dictionary["engine_series"][0][1] == "series"
    assert all(name is not None for entries in dictionary.values() for name, _, _ in entries[1:])


def test_columns_are_in_the_order_of_an_export(filled: Filled, dictionary: dict[str, list[Entry]]) -> None:
    for table in (*EXPORTABLE, *SERIES):
        span = {} if table in EXPORTABLE else {"start": T0, "end": T0 + timedelta(hours=1)}
        header = b"".join(filled.store.export_csv(table, **span)).split(b"\n")[0].decode()
        assert [name for name, _, _ in dictionary[table][1:]] == header.split(","), table


@pytest.mark.parametrize("name", SERIES)
def test_types_of_a_series_are_those_of_its_answer(
    filled: Filled, dictionary: dict[str, list[Entry]], name: str
) -> None:
    answer = filled.store.query(name, {"start": T0, "end": T0 + timedelta(hours=1)})
    with duckdb.connect() as connection:
        expected = [str(kind) for kind in connection.from_arrow(answer).types]
    assert [kind for _, kind, _ in dictionary[name][1:]] == expected


def test_a_column_that_repeats_another_has_its_meaning(dictionary: dict[str, list[Entry]]) -> None:
    minutes, hours = (
        {name: comment for name, _, comment in dictionary[table][1:]} for table in ("engine_minute", "engine_hour")
    )
    assert hours == minutes
