"""Memory: will it fit, how many users, and on which engine?"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pandas as pd
import pyarrow as pa
import streamlit as st

import access
from calculator.document import rows as plan_rows
from calculator.model import CalculatorError
from store.protocol import StoreError
from views import data, empty, memory_inputs, memory_models, memory_plan, memory_scores, memory_waste

st.html(
    '<div class="er-title"><h1>Memory</h1>'
    '<p class="er-note">Will it fit, for how many users, and on which engine?</p></div>'
)

if ignored := memory_inputs.read_link():
    st.warning(
        f"**The link's {', '.join(ignored)} was ignored:** there is no such choice. Choose below.",
        icon=":material/link_off:",
    )
now = datetime.now(UTC).replace(microsecond=0)
problem: StoreError | None = None
scores: data.Records = []
running: set[str] = set()
machine_records: list[data.Records] = [[], []]
try:
    scores = data.records("memory_scores")
    running = {str(row["engine_id"]) for row in data.records("overview", at=None) if row["state"] != "stopped"}
    machine_records = [
        data.records("devices"),
        data.records("host_series", start=now - timedelta(minutes=2), end=now + timedelta(seconds=1), points=40),
    ]
except StoreError as error:
    problem = error  # the calculator works without a collector; what it measured is missing below

of_running = [row for row in scores if row["engine_id"] in running]
choices = memory_models.choices(of_running)
may_read = memory_models.allowed(of_running)

with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    key = st.selectbox(
        "Model",
        list(choices),
        index=list(choices).index("Qwen3-8B") if "Qwen3-8B" in choices else 0,
        format_func=lambda name: choices[name].title if name in choices else name,
        key="model",
        bind="query-params",
        accept_new_options=True,
        width=340,
        help="A model of the catalogue, of a running engine, or of a configured folder; or type a Hugging Face id.",
    )
    try:
        machine = memory_inputs.draw_machine(machine_records)
        machine_error = None
    except CalculatorError as error:
        machine, machine_error = None, error
with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
    load = memory_inputs.draw_load()

if machine is None:
    st.warning(f"**This host can't be planned for.** {machine_error}", icon=":material/help:")
    st.stop()

choice = choices.get(str(key or "")) or None
operator = access.page_may_operate(st.context)
try:
    choice = choice or memory_models.typed(str(key or ""))
    asked = bool(st.session_state.get("asked_hub") == choice.key) and operator
    model = memory_models.load(choice, may_read, network=asked)
except CalculatorError as error:
    st.error(f"**The facts of this model are not known.** {error}", icon=":material/error:")
    if choice is not None and "/" in choice.key and not choice.key.startswith(("/", ".", "~")):
        st.button(
            "Ask huggingface.co for its configuration",
            icon=":material/cloud_download:",
            disabled=not operator,
            on_click=lambda: st.session_state.update(asked_hub=choice.key),
            help=None if operator else "Only from the host that the dashboard runs on.",
        )
    st.stop()

st.html(f'<p class="er-note">Facts of the model: {model.source}. Capacities: {machine.source}.</p>')
has_file = memory_plan.is_gguf(model)
answers: dict[str, memory_plan.Answer] = {}
problems: dict[str, CalculatorError] = {}
left, right = st.columns(2, gap="large")
for title, column in (("vLLM", left), ("llama.cpp", right)):
    with column:
        st.subheader(title, anchor=False)
        try:
            if title == "vLLM":
                flags, weights = memory_inputs.draw_vllm(len(machine.devices))
                answers[title] = memory_plan.answer_vllm(model, choice.served, flags, weights, load, machine)
            else:
                flags, quant = memory_inputs.draw_llamacpp(has_file=has_file, has_devices=bool(machine.devices))
                answers[title] = memory_plan.answer_llamacpp(
                    model, choice.served, flags, quant, load, machine, may_read
                )
        except CalculatorError as error:
            problems[title] = error
top_gib = memory_plan.top_of(list(answers.values()))
for title, column in (("vLLM", left), ("llama.cpp", right)):
    with column:
        if title in answers:
            memory_plan.draw(title, answers[title], top_gib)
        else:
            st.warning(f"**No plan for {title}.** {problems[title]}", icon=":material/help:")

if answers:
    st.subheader("Which context for how many users?", anchor=False)
    for title, column in zip(answers, st.columns(2, gap="large"), strict=False):
        with column:
            memory_plan.draw_heat_map(title, answers[title])

    with st.expander("Why? Every part and the rule behind it", icon=":material/functions:"):
        for title, answer in answers.items():
            st.markdown(f"**{title}**")
            st.dataframe(memory_plan.why_frame(answer.plan), hide_index=True, key=f"why-{title}")
            st.table(memory_plan.rule_frame(answer.plan).set_index("rule"))
    st.download_button(
        "Plan as CSV",
        data=lambda: (
            pd.DataFrame([row for answer in answers.values() for row in plan_rows(answer.plan)])
            .to_csv(index=False)
            .encode()
        ),
        file_name="engine-room_memory-plan.csv",
        mime="text/csv",
        key="csv-plan",
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
    )

st.subheader("How much reserved cache stays empty?", anchor=False)
try:
    waste = memory_waste.waste_of(load)
    st.vega_lite_chart(
        None,
        {
            **memory_waste.waste_spec(),
            "datasets": {"waste": pa.Table.from_pandas(memory_waste.waste_rows(waste), preserve_index=False)},
        },
        key="waste",
        width="stretch",
        alt=f"Reserved cache that stays empty: contiguous {waste.contiguous_fraction:.1%}, "
        f"paging {waste.paged_fraction:.1%}",
    )
    st.html(memory_waste.sentence(waste, load))
except CalculatorError as error:
    st.warning(str(error))

st.subheader("Predicted against measured", anchor=False)
if problem is not None:
    empty.store_problem(problem)
elif not scores:
    st.markdown(
        "Nothing has been compared yet. The collector plans every engine that runs on this host from its own "
        "arguments and model file, and lays the plan beside what it measures."
    )
else:
    st.html(f'<p class="er-note">{memory_scores.summary(scores)}</p>')
    st.dataframe(
        memory_scores.score_frame(scores),
        hide_index=True,
        key="scores",
        column_config={
            "what it leaves out": st.column_config.TextColumn(width="large"),
            "measured by": st.column_config.TextColumn(width="medium"),
            "error": st.column_config.TextColumn(width=120),
        },
    )
    st.download_button(
        "Comparisons as CSV",
        data=lambda: memory_scores.csv(scores),
        file_name="engine-room_memory-scores.csv",
        mime="text/csv",
        key="csv-scores",
        on_click="ignore",
        type="tertiary",
        icon=":material/download:",
    )
