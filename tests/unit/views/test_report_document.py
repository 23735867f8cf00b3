"""What a report is made of, as it is saved and as it comes back. Limits are those of the pages it is made on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.report_document import BadReportError, ReportDocument, checked, from_json

WINDOW = "vllm-8000~2026-12-01T09:00:00Z~2026-12-01T10:00:00Z"
RUN = "20261201T091500Z-4f2a"
names = st.lists(st.text(min_size=1, max_size=60), max_size=6).map(tuple)


@given(
    st.builds(
        ReportDocument,
        st.text(min_size=1, max_size=200),
        st.text(max_size=500),
        names,
        names,
        st.booleans(),
        st.booleans(),
    ).filter(lambda document: document.windows or document.runs)
)
def test_a_document_survives_being_saved(document):
    assert from_json(json.loads(json.dumps(document.to_json()))) == document


def test_what_an_older_page_did_not_save_has_its_default():
    assert from_json({"windows": [WINDOW]}) == ReportDocument("Report", windows=(WINDOW,))
    assert from_json({"windows": [WINDOW], "scrub": "yes", "raw": 1, "later": {}}).scrub is False


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({}, "A report needs a window or a load test: choose one."),
        ({"windows": WINDOW}, "The saved report can't be read: its windows are no list of text."),
        ({"windows": [WINDOW, 7]}, "its windows are no list of text"),
        ({"windows": [WINDOW], "runs": {"run": RUN}}, "its runs are no list of text"),
        ({"windows": [WINDOW] * 7}, "7 windows are too many for one report: choose at most 6."),
        ({"runs": [RUN] * 7}, "7 load tests are too many for one report: choose at most 6."),
        ({"runs": [RUN], "title": "x" * 201}, "The title has 201 characters: shorten it to at most 200."),
        ({"runs": [RUN], "note": "x" * 10_001}, "The note has 10,001 characters: shorten it to at most 10,000."),
    ],
)
def test_a_document_that_makes_no_report_says_why(content, says):
    with pytest.raises(BadReportError) as refused:
        from_json(content)
    assert says in str(refused.value)


def test_the_largest_document_is_taken():
    largest = ReportDocument("x" * 200, "y" * 10_000, (WINDOW,) * 6, (RUN,) * 6, scrub=True, raw=True)
    assert checked(largest) is largest
