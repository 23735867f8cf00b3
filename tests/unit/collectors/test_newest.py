"""The newest rows on their way to the store, against rows written by hand."""

from collections.abc import Sequence

import pytest

from collectors.newest import NewestRows
from store.model import Row
from tests.support.rows import ENGINE, GPU, device, device_sample, held, host_sample, sample


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def put(self, rows: Sequence[Row]) -> None:
        self.rows += rows


def test_everything_is_passed_on_unchanged() -> None:
    kept = Kept()
    rows = [sample(1), host_sample(1), held(1, 5), device()]
    NewestRows(kept).put(rows)
    assert kept.rows == rows


def test_an_engine_has_its_newest_sample_and_host_memory() -> None:
    newest = NewestRows(Kept())
    assert newest.of(ENGINE) is None
    newest.put([sample(1), held(1, 100, device_id=None, method="rss")])
    newest.put([sample(3, kv_capacity_tokens=7.0), held(3, 120, device_id=None, method="rss")])
    found = newest.of(ENGINE)
    assert found is not None
    assert (found.sample.kv_capacity_tokens, found.host and found.host.memory_bytes) == (7.0, 120)


def test_memory_that_is_no_longer_sampled_does_not_count() -> None:
    newest = NewestRows(Kept())
    newest.put([device(), device_sample(1), sample(1), held(1, 100), held(1, 100, device_id=None, method="rss")])
    newest.put([sample(60), device_sample(60)])
    found = newest.of(ENGINE)
    assert found is not None
    assert (found.host, found.devices) == (None, ())


@pytest.mark.parametrize(("second", "total"), [(30, 130), (None, None)])
def test_the_processes_of_an_engine_on_one_device_are_added_up(second: int | None, total: int | None) -> None:
    newest = NewestRows(Kept())
    newest.put([device(), device_sample(5), sample(5), held(5, 100, pid=1), held(5, second, pid=2)])
    newest.put([held(5, 999, engine_id=None, pid=3)])  # of no engine
    (one,) = newest.of(ENGINE).devices
    assert (one.memory_bytes, one.method, one.device.device_id) == (total, "nvml_process", GPU)


def test_a_process_that_ended_is_not_added_to_the_newest_ones() -> None:
    newest = NewestRows(Kept())
    newest.put([device(), device_sample(5), held(5, 100, pid=1)])
    newest.put([sample(6), held(6, 40, pid=2)])
    (one,) = newest.of(ENGINE).devices
    assert one.memory_bytes == 40


def test_devices_come_in_the_driver_s_order() -> None:
    newest = NewestRows(Kept())
    for name, index in (("GPU-a", 1), ("GPU-b", 0)):
        newest.put([device(name, index=index), device_sample(5, name), held(5, 10, device_id=name)])
    newest.put([sample(5)])
    assert [one.device.index for one in newest.of(ENGINE).devices] == [0, 1]
