"""Past load tests: which are shown (in the URL), the list of all, deletion, and the import of other tools' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

import access
from store.protocol import StoreError
from views import loadtest_data, loadtest_tables
from views.loadtest_data import MOST_RUNS, Row, Run

OPERATORS = "Only from the host that the dashboard runs on."
FILE_TYPES = ("json", "jsonl", "csv")
MOST_FILE_MB, MOST_FILES_BYTES = 40, 45_000_000  # the collector takes 50 MB in one command


def chosen(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """The runs that the link names, in its order, and the ids of it that are no run (any more)."""
    known = {str(row["run_id"]): row for row in rows}
    asked = list(dict.fromkeys(st.query_params.get_all("run")))
    return [known[run_id] for run_id in asked if run_id in known][:MOST_RUNS], [
        run_id for run_id in asked if run_id not in known
    ]


def title(row: Row) -> str:
    """
    A run in a list: its name and its id, which tells when it was asked for.

    Nothing that changes while it runs: the browser hands back the title, and an old one would name no run.
    """
    return f"{row['name']} · {row['run_id']}"


def draw_choice(rows: Sequence[Row], shown: Sequence[Row]) -> None:
    """Which runs are laid over each other, and the way back to a new one."""
    known = {str(row["run_id"]): row for row in rows}
    # The link decides; the control follows it.
    ids = [str(row["run_id"]) for row in shown]
    if st.session_state.get("loadtest_link") != ids:
        st.session_state["loadtest_link"] = ids
        st.session_state["loadtest_shown"] = ids
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.multiselect(
            "Runs shown", list(known), format_func=lambda run_id: title(known[run_id]), max_selections=MOST_RUNS,
            key="loadtest_shown", on_change=_choose, placeholder="choose past runs", width=640,
            help=f"Up to {MOST_RUNS} runs are laid over each other.",
        )  # fmt: skip
        if shown:
            st.button("New load test", icon=":material/add:", key="new", on_click=show, args=([],))


def _choose() -> None:
    show(st.session_state["loadtest_shown"])


def show(run_ids: Sequence[str]) -> None:
    """Put runs into the link; none: the set-up of a new one."""
    if run_ids:
        st.query_params["run"] = list(run_ids)
    else:
        st.query_params.pop("run", None)
    st.session_state["loadtest_link"] = None


def draw_list(rows: Sequence[Row]) -> None:
    """All runs; a click on one shows it."""
    if not rows:
        st.markdown("No load test has been run or imported yet.")
        return
    shown = st.session_state.setdefault("loadtest_list", 0)
    key = f"loadtest-list-{shown}"  # a new list after each choice, without a mark on the last one

    def open_row() -> None:
        at = st.session_state[key]["selection"]["rows"]
        st.session_state["loadtest_list"] = shown + 1
        if at:
            show([str(rows[at[0]]["run_id"])])

    st.dataframe(
        loadtest_tables.run_frame(rows), hide_index=True, key=key, on_select=open_row, selection_mode="single-row",
        column_config={"name": st.column_config.TextColumn(width="medium")},
    )  # fmt: skip
    st.caption("Choose a row to see its results. Times are UTC.")


def draw_delete(runs: Sequence[Run]) -> None:
    """A button for each run that is over; it asks once more."""
    with st.container(horizontal=True, gap="small"):
        for run in runs:
            more = f" {run.name}" if len(runs) > 1 else ""
            if st.button(
                f"Delete{more}", key=f"delete-{run.key}", icon=":material/delete:", type="tertiary",
                disabled=run.active, help="Stop it first." if run.active else None,
            ):  # fmt: skip
                _confirm(run)


@st.dialog("Delete this load test?")
def _confirm(run: Run) -> None:
    st.markdown(
        f"**{run.name}** with its {len(run.stages)} stages and all their requests. It can't be brought back; its CSV "
        "can be downloaded before."
    )
    with st.container(horizontal=True):
        if st.button("Delete", type="primary", key="confirm-delete", on_click=_delete, args=(run,)):
            st.rerun()
        if st.button("Keep", key="confirm-keep"):
            st.rerun()


def _delete(run: Run) -> None:
    if not access.page_may_operate(st.context):
        st.session_state["loadtest_problem"] = f"**Not deleted.** {OPERATORS}"
        return
    try:
        gone = loadtest_data.command("loadtest_delete", run_id=run.run_id)["deleted"]
    except StoreError as error:
        st.session_state["loadtest_problem"] = f"**Not deleted.** {error}"
        return
    st.session_state["loadtest_done"] = (
        f"{run.name} is deleted." if gone else f"{run.name} was gone already: somebody else deleted it."
    )
    show([run_id for run_id in st.query_params.get_all("run") if run_id != run.run_id])


def draw_import() -> None:
    """Result files of other tools become runs."""
    with st.expander("Import results of other tools", icon=":material/upload_file:"):
        st.markdown(
            "Result files of `vllm bench serve`, guidellm, AIPerf, llama-bench and llama-benchy. Their definitions are "
            "translated; what a file does not tell is shown as missing."
        )
        files = st.file_uploader(
            "Files", FILE_TYPES, accept_multiple_files=True, max_upload_size=MOST_FILE_MB,
            key=f"loadtest-files-{st.session_state.get('loadtest_files', 0)}", label_visibility="collapsed",
        )  # fmt: skip
        name = st.text_input("Call it", "", 120, key="import_name", placeholder="as the file", width=300)
        if st.button("Import", key="import", disabled=not files):
            if _import(files, name.strip()):
                st.rerun()
            st.error(st.session_state.pop("loadtest_problem"), icon=":material/error:")


def _import(files: Sequence[st.runtime.uploaded_file_manager.UploadedFile], name: str) -> bool:
    """Hand the files to the collector and show what they became; False: a message says what is wrong."""
    if not access.page_may_operate(st.context):
        st.session_state["loadtest_problem"] = f"**Not imported.** {OPERATORS}"
        return False
    if sum(file.size for file in files) > MOST_FILES_BYTES:
        st.session_state["loadtest_problem"] = (
            f"**Not imported.** Together the files are larger than {MOST_FILES_BYTES // 1_000_000} MB; import fewer at "
            "once."
        )
        return False
    contents = []
    for file in files:
        try:
            contents.append({"name": file.name, "text": file.getvalue().decode("utf-8")})
        except UnicodeDecodeError:
            st.session_state["loadtest_problem"] = (
                f"**Not imported.** {file.name} is no text in UTF-8, so it is no result file of these tools."
            )
            return False
    try:
        answer = loadtest_data.command("loadtest_import", files=contents, name=name or None)
    except StoreError as error:
        st.session_state["loadtest_problem"] = f"**Not imported.** {error}"
        return False
    st.session_state["loadtest_files"] = st.session_state.get("loadtest_files", 0) + 1
    st.session_state["loadtest_done"] = _imported(answer)
    show([str(run_id) for run_id in answer["run_ids"]][:MOST_RUNS])
    return True


def _imported(answer: Mapping[str, object]) -> str:
    run_ids, notes = answer.get("run_ids"), answer.get("notes")
    count = len(run_ids) if isinstance(run_ids, list) else 0
    text = f"{count} run{'' if count == 1 else 's'} imported."
    return " ".join([text, *(str(note) for note in notes)]) if isinstance(notes, list) else text


def draw_gone(run_ids: Sequence[str]) -> None:
    """Say which runs of a link are not there."""
    for run_id in run_ids:
        st.warning(
            f"**There is no load test `{run_id[:64]}` here.** It was deleted, or the link is of another host.",
            icon=":material/link_off:",
        )
