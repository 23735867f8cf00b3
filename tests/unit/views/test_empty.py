"""States of a page without data, drawn by the real Streamlit runtime (AppTest)."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest


def test_a_busy_store_is_told_as_busy_and_not_as_gone():
    def page() -> None:
        from store.protocol import StoreBusyError
        from views import empty

        empty.store_problem(StoreBusyError("two reads are running; ask again"))

    app = AppTest.from_function(page).run()
    assert "The store is busy" in app.info[0].value
    assert "two reads are running" in app.info[0].value
    assert not app.warning


def test_another_fault_is_told_with_its_own_words():
    def page() -> None:
        from store.protocol import NewerStoreError
        from views import empty

        empty.store_problem(NewerStoreError("the file was written by Engine Room 9; update this one"))

    app = AppTest.from_function(page).run()
    assert "update this one" in app.error[0].value
