"""
Model facts by a Hugging Face repository id: its ``config.json`` and the headers of its safetensors files, no weights.

The one part of the calculator that uses the network. With no network it says so; the catalogue and local folders
need none.
"""

from __future__ import annotations

import json
import re

import httpx2
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.constants import is_offline_mode
from huggingface_hub.errors import HfHubHTTPError, NotASafetensorsRepoError, SafetensorsParsingError
from huggingface_hub.utils._headers import build_hf_headers

from calculator.hf_config import LARGEST_CONFIG_BYTES, model_from_config
from calculator.hf_tensors import with_tensors
from calculator.model import CalculatorError, MalformedModelError, MissingFactError, Model, Tensor
from calculator.safetensors_header import DTYPE_BITS

TIMEOUT_SECONDS = 10.0
OFFLINE = "the network doesn't allow it; give a folder with config.json or a name of the catalogue"


def load(repo_id: str, *, endpoint: str | None = None) -> Model:
    """
    Read a repository's configuration and, where it has safetensors files, their tensor tables.

    :param repo_id: "owner/name"
    :param endpoint: another hub than https://huggingface.co
    :raises CalculatorError: offline, no such repository, no access, or a configuration that can't be planned
    """
    api = HfApi(endpoint=endpoint)
    config = _config(repo_id, endpoint)
    source = f"{api.endpoint}/{repo_id}/blob/main/config.json"
    model = model_from_config(config, name=repo_id.rpartition("/")[2], source=source)
    tensors = _tensors(api, repo_id)
    return with_tensors(model, tensors) if tensors else model


def _config(repo_id: str, endpoint: str | None) -> dict[str, object]:
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo_id):
        raise CalculatorError(f"{repo_id!r} is not a repository id; it is written owner/name")
    if is_offline_mode():
        raise CalculatorError(f"{repo_id}: HF_HUB_OFFLINE is set and {OFFLINE}")
    # One request of our own: the library's download repeats a refused connection for half a minute.
    url = hf_hub_url(repo_id, "config.json", endpoint=endpoint)
    try:
        response = httpx2.get(url, headers=build_hf_headers(), timeout=TIMEOUT_SECONDS, follow_redirects=True)
    except httpx2.HTTPError as error:
        raise CalculatorError(f"{repo_id}: {OFFLINE} ({type(error).__name__})") from None
    if response.status_code == 404 and response.headers.get("x-error-code") == "EntryNotFound":
        raise MissingFactError(f"{repo_id}: the repository has no config.json")
    if response.status_code in (401, 403, 404):
        raise CalculatorError(
            f"{repo_id}: there is no such repository or access to it is restricted; for a restricted one set HF_TOKEN "
            "of an account with access"
        )
    if response.status_code != 200:
        raise CalculatorError(f"{repo_id}: the hub answered {response.status_code}")
    if len(response.content) > LARGEST_CONFIG_BYTES:
        raise MalformedModelError(f"{repo_id}: config.json is larger than {LARGEST_CONFIG_BYTES} bytes")
    try:
        content = json.loads(response.content)
    except (ValueError, RecursionError):
        raise MalformedModelError(f"{repo_id}: config.json is not JSON") from None
    if not isinstance(content, dict):
        raise MalformedModelError(f"{repo_id}: config.json is not a JSON object")
    return content


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
