"""Which model files may be read: real folders and links on disk. A person's words for a model are checked as well."""

from pathlib import Path

import pytest

from calculator.model import CalculatorError
from calculator.references import Allowed, as_path


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    return folder


def test_a_file_in_a_configured_folder_is_read(models: Path) -> None:
    allowed = Allowed.of([models])
    assert allowed.check(models / "a.gguf") == (models / "a.gguf").resolve()
    assert allowed.check(models / "deeper" / ".." / "a.gguf") == (models / "a.gguf").resolve()


@pytest.mark.parametrize("path", ["../secret.gguf", "/etc/passwd", "~/x.gguf", "sub/../../secret.gguf"])
def test_paths_that_leave_the_folder_are_refused(models: Path, path: str) -> None:
    with pytest.raises(CalculatorError, match="model_folders"):
        Allowed.of([models]).check(models / path if not path.startswith(("/", "~")) else Path(path))


def test_links_that_lead_out_are_refused(models: Path) -> None:
    (models / "link.gguf").symlink_to(models.parent / "secret.gguf")
    (models / "within.gguf").symlink_to(models / "a.gguf")
    allowed = Allowed.of([models])
    assert allowed.check(models / "within.gguf") == models / "a.gguf"
    with pytest.raises(CalculatorError, match="model_folders"):
        allowed.check(models / "link.gguf")


def test_a_part_of_a_split_file_may_not_lead_out_either(models: Path) -> None:
    (models / "m-00001-of-00002.gguf").write_bytes(b"GGUF")
    (models / "m-00002-of-00002.gguf").symlink_to(models.parent / "secret.gguf")
    with pytest.raises(CalculatorError, match=r"00002-of-00002.*leads out"):
        Allowed.of([models]).check(models / "m-00001-of-00002.gguf")


def test_a_folder_whose_configuration_leads_out_is_refused(models: Path) -> None:
    model = models / "hf"
    model.mkdir()
    (models.parent / "elsewhere.json").write_text("{}")
    (model / "config.json").symlink_to(models.parent / "elsewhere.json")
    with pytest.raises(CalculatorError, match="leads out"):
        Allowed.of([models]).check(model)
    with pytest.raises(CalculatorError, match="leads out"):
        Allowed.of([], [model]).check(model)


def test_a_hugging_face_cache_that_an_engine_names_may_link_to_its_own_blobs(tmp_path: Path) -> None:
    # Layout of the Hugging Face cache: models--x/blobs/<hash>, models--x/snapshots/<revision>/config.json -> blob.
    repo = tmp_path / "models--Qwen--Qwen3-8B"
    snapshot = repo / "snapshots" / "b968826d"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (repo / "blobs" / "1f2e").write_text("{}")
    (snapshot / "config.json").symlink_to(repo / "blobs" / "1f2e")
    assert Allowed.of([], [snapshot]).check(snapshot) == snapshot.resolve()
    (snapshot / "model.safetensors").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("")
    with pytest.raises(CalculatorError, match="leads out"):
        Allowed.of([], [snapshot]).check(snapshot)


def test_the_file_that_an_engine_names_counts_and_its_neighbours_do_not(models: Path) -> None:
    allowed = Allowed.of([], [models / "a.gguf", models / "missing.gguf"])
    assert allowed.check(models / "a.gguf").name == "a.gguf"
    (models / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(CalculatorError, match="model_folders"):
        allowed.check(models / "b.gguf")


def test_without_any_folder_nothing_is_read(models: Path) -> None:
    with pytest.raises(CalculatorError, match="model_folders"):
        Allowed.of([]).check(models / "a.gguf")


def test_names_and_paths_are_told_apart(models: Path) -> None:
    assert as_path("Qwen/Qwen3-8B") is None
    assert as_path(str(models / "a.gguf")) == models / "a.gguf"
    for missing in ("/no/such/model", "./model", "Qwen3-8B-Q4_K_M.gguf", "~/no-such-model-here"):
        with pytest.raises(CalculatorError, match="does not exist"):
            as_path(missing)
    for nothing in ("", "  ", "a\0b", "x" * 5000):
        with pytest.raises(CalculatorError, match="no model is named"):
            as_path(nothing)


def test_where_reading_is_limited_nobody_learns_what_exists_outside(models: Path) -> None:
    allowed = Allowed.of([models])
    texts = []
    for path in (models.parent / "secret.gguf", models.parent / "missing.gguf"):
        with pytest.raises(CalculatorError, match="model_folders") as told:
            as_path(str(path), allowed)
        texts.append(str(told.value).replace(path.name, "X"))
    assert texts[0] == texts[1]
    assert as_path("pyproject.toml", allowed) is None  # a file of the working directory is a name like any other
    with pytest.raises(CalculatorError, match="does not exist"):
        as_path(str(models / "missing.gguf"), allowed)


@pytest.mark.parametrize(
    "name", ["~nobody-of-this-name/x.gguf", "loop.gguf", "a" * 400 + ".gguf", "sub/" * 900 + "x.gguf"]
)
def test_odd_paths_are_refused_with_a_message(models: Path, name: str) -> None:
    (models / "loop.gguf").symlink_to(models / "loop.gguf")
    path = name if name.startswith("~") else str(models / name)
    with pytest.raises(CalculatorError):
        as_path(path, Allowed.of([models]))
    with pytest.raises(CalculatorError):
        as_path(path)
