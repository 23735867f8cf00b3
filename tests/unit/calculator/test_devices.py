"""
Devices as people write them, and the presets.

The totals are those of logs: a vLLM log of an A10G ("22.07 GiB"), PyTorch's messages ("GPU 0 has a total capacity
of 79.11 GiB" on an H100, vllm-project/vllm#27508), `rocm-smi` of an MI300X (206141652992 bytes).
"""

import pytest

from calculator.devices import GIB, PRESETS, parse_devices, parse_size, preset
from calculator.model import CalculatorError


def test_a_list_of_sizes_and_presets() -> None:
    found = parse_devices("24GiB, 2xh100,16 gb")
    assert [device.capacity_bytes for device in found] == [25769803776, 84943715697, 84943715697, 16_000_000_000]
    assert [device.name for device in found] == ["device 0", "H100 80 GB 1", "H100 80 GB 2", "device 3"]


def test_the_cpu_alone_is_no_device() -> None:
    assert parse_devices("cpu") == ()
    with pytest.raises(CalculatorError, match="the host itself"):
        parse_devices("cpu,24GiB")


def test_totals_are_what_drivers_report_not_the_label() -> None:
    assert preset("MI300X").device().capacity_bytes == 206_141_652_992
    assert preset("a10g").device().capacity_bytes == pytest.approx(22.07 * GIB, abs=0.01 * GIB)
    assert preset("apple-96").device().unified
    assert all(preset.source for preset in PRESETS)


@pytest.mark.parametrize(
    "text", ["", ",", "0GiB", "24", "-1GiB", "1e9GiB", "24 GiBs", "rtx-9999", "65x24GiB", "0x24GiB"]
)
def test_what_is_no_device_is_named(text: str) -> None:
    with pytest.raises(CalculatorError):
        parse_devices(text)


def test_a_bare_number_asks_for_its_unit() -> None:
    with pytest.raises(CalculatorError, match="24GiB"):
        parse_size("24")
    assert parse_size("25769803776") == 25769803776
    assert parse_size("1.5 TiB") == 1649267441664
