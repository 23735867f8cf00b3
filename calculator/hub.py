"""
Model facts by a Hugging Face repository id: its ``config.json`` and the headers of its safetensors files, no weights.

The one part of the calculator that uses the network. With no network it says so; the catalogue and local folders
need none.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import httpx2
from huggingface_hub import HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    NotASafetensorsRepoError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    SafetensorsParsingError,
)

from calculator.hf_config import load_config, model_from_config
from calculator.hf_tensors import with_tensors
from calculator.model import CalculatorError, MissingFactError, Model, Tensor
from calculator.safetensors_header import DTYPE_BITS

OFFLINE = "the network doesn't allow it; give a folder with config.json or a name of the catalogue"


def load(repo_id: str, *, endpoint: str | None = None) -> Model:
    """
    Read a repository's configuration and, where it has safetensors files, their tensor tables.

    :param repo_id: "owner/name"
    :param endpoint: another hub than https://huggingface.co
    :raises CalculatorError: offline, no such repository, no access, or a configuration that can't be planned
    """
    api = HfApi(endpoint=endpoint)
    try:
        with tempfile.TemporaryDirectory(prefix="hub-config-") as folder:
            path = api.hf_hub_download(repo_id, "config.json", local_dir=folder)
            config = load_config(Path(path))
    except HFValidationError:
        raise CalculatorError(f"{repo_id!r} is not a repository id; it is written owner/name") from None
    except GatedRepoError:
        raise CalculatorError(
            f"{repo_id}: access is restricted; set HF_TOKEN of an account that was granted it"
        ) from None
    except RepositoryNotFoundError:
        raise CalculatorError(f"{repo_id}: there is no such repository, or it is private") from None
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, httpx2.HTTPError):
        raise CalculatorError(f"{repo_id}: {OFFLINE}") from None
    except EntryNotFoundError:
        raise MissingFactError(f"{repo_id}: the repository has no config.json") from None
    except HfHubHTTPError as error:
        raise CalculatorError(f"{repo_id}: the hub answered {error.response.status_code}") from None
    source = f"{api.endpoint}/{repo_id}/blob/main/config.json"
    model = model_from_config(config, name=repo_id.rpartition("/")[2], source=source)
    tensors = _tensors(api, repo_id)
    return with_tensors(model, tensors) if tensors else model


def _tensors(api: HfApi, repo_id: str) -> tuple[Tensor, ...]:
    """Give the tensor tables; none where the repository has no safetensors files or they can't be read now."""
    try:
        metadata = api.get_safetensors_metadata(repo_id)
    except (NotASafetensorsRepoError, SafetensorsParsingError, HfHubHTTPError, httpx2.HTTPError):
        return ()
    out = []
    for file in metadata.files_metadata.values():
        for name, info in file.tensors.items():
            bits = DTYPE_BITS.get(info.dtype)
            if bits is None:
                return ()
            start, stop = info.data_offsets
            out.append(Tensor(name, tuple(info.shape), info.dtype, stop - start))
    return tuple(out)
