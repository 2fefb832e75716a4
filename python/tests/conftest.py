"""What the tests share: the source tree, the ridge program whose results are the reference, and models."""
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

import ridge

ROOT = pathlib.Path(os.environ.get("RIDGE_ROOT", pathlib.Path(__file__).resolve().parents[2]))
BINARY = os.environ.get("RIDGE_BINARY", str(ROOT / "build" / "ridge"))
TALES = ROOT / "models" / "tales-1m"
GOLDEN = ROOT / "tests" / "golden"
SMALL = {"kv_bytes": 64 << 20, "n_threads": 2}


def command(*args, text=None):
    """What `ridge ARGS --json` says."""
    run = subprocess.run([BINARY, *map(str, args), "--json"], capture_output=True, text=True, input=text)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def tensors(path):
    """A safetensors file as arrays."""
    data = pathlib.Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "I32": np.int32, "F64": np.float64}
    return {name: np.frombuffer(data[8 + n:][t["data_offsets"][0]:t["data_offsets"][1]], kinds[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(data[8:8 + n]).items() if name != "__metadata__"}


def float32(numbers):
    """Numbers as they are printed (17 digits, or the shortest that do) are those of the engine, bit for bit."""
    return np.array(numbers, np.float32)


@pytest.fixture(scope="session")
def tales():
    with ridge.open(TALES, **SMALL) as engine:
        yield engine


@pytest.fixture(scope="session")
def exact():
    with ridge.open(TALES, recipe="exact", kv_type="f32", **SMALL) as engine:
        yield engine


@pytest.fixture(scope="session")
def reranker(tmp_path_factory):
    """The path of a small model that scores pairs of texts, with a tokenizer."""
    folder = tmp_path_factory.mktemp("reranker")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "bert-rerank" / name, folder)
    shutil.copy(GOLDEN / "tokenizers" / "letters.json", folder / "tokenizer.json")
    return folder
