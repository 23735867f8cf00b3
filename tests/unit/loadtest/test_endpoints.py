"""Which engine of the collector an endpoint is, however its address is spelt."""

import pytest

from loadtest.endpoints import Known, address, from_page, key_of, known_endpoints, match
from loadtest.spec import Spec
from tests.support.rows import engine, epoch

URL = "http://127.0.0.1:8000"


def spec(url: str, model: str | None = None) -> Spec:
    return Spec.from_json({"endpoints": [{"url": url, "model": model}]})


@pytest.mark.parametrize(
    "url",
    [URL, "http://localhost:8000/", "http://[::1]:8000/v1", "http://127.0.0.53:8000/v1/", "HTTP://LOCALHOST:8000"],
)
def test_all_names_of_the_loopback_are_one_address(url: str) -> None:
    assert address(url) == address(URL)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "http://10.0.0.7:8000", "http://127.0.0.1:8000/other", "x"])
def test_other_addresses_are_others(url: str) -> None:
    assert address(url) != address(URL)


def test_a_port_is_that_of_the_scheme_where_none_is_given() -> None:
    assert address("https://llm.example/v1") == address("https://llm.example:443")


def test_of_two_engines_that_were_seen_at_one_address_the_later_one_answers() -> None:
    old = (engine("llama.cpp-8000", url=URL), epoch("l@1", "llama.cpp-8000", started=0))
    new = (engine("vllm-8000", url=URL), epoch("v@1", started=500))
    for known in (known_endpoints([old, new], []), known_endpoints([new, old], [])):
        (found,) = match(spec("http://localhost:8000"), known)
        assert found is not None
        assert found.engine == new[0]


def router() -> list[Known]:
    ids = {"llama.cpp-8080-a": "a", "llama.cpp-8080-b": "b"}
    return known_endpoints(
        [(engine(name, name, kind="llama.cpp", url=URL), epoch(name, name, model_id=m)) for name, m in ids.items()], []
    )


def test_a_model_of_a_router_is_asked_for_by_its_name() -> None:
    (endpoint,) = from_page({"endpoints": [{"engine_id": "llama.cpp-8080-b"}]}, router(), ()).endpoints
    assert (endpoint.model, endpoint.engine_id) == ("b", "llama.cpp-8080-b")
    (found,) = match(spec(URL, "b"), router())
    assert found is not None
    assert found.label == "llama.cpp-8080-b"


def test_an_engine_alone_at_its_address_is_asked_for_what_it_lists_first() -> None:
    known = known_endpoints([(engine(), epoch(model_id="Qwen/Qwen3-8B"))], [])
    (endpoint,) = from_page({"endpoints": [{"engine_id": "vllm-8000"}]}, known, ()).endpoints
    assert endpoint.model is None


def test_a_configured_target_gives_its_key_to_the_engine_behind_it_and_is_an_endpoint_where_there_is_none() -> None:
    targets = [("http://localhost:8000", "mine", "MY_KEY"), ("https://llm.example", None, "OTHER_KEY")]
    first, second = known_endpoints([(engine(url=URL), epoch())], targets)
    assert (first.engine is not None, first.api_key_env) == (True, "MY_KEY")
    assert (second.engine, second.label, second.api_key_env) == (None, "llm.example", "OTHER_KEY")


def test_two_runs_meet_at_an_address_that_nobody_knows() -> None:
    one, two = spec("http://localhost:9999/v1").endpoints[0], spec("http://127.0.0.1:9999").endpoints[0]
    assert key_of(one, None) == key_of(two, None)
