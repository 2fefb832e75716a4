"""The adapter for lm-evaluation-harness, where that is installed: its numbers are the engine's, and a whole task runs."""
import importlib.metadata
import json
import math
import subprocess
import sys

import numpy as np
import pytest

from conftest import TALES

pytest.importorskip("lm_eval")
import lm_eval  # noqa: E402
from lm_eval.api.instance import Instance  # noqa: E402

import ridge.lm_eval  # noqa: E402


@pytest.fixture(scope="module")
def lm(exact):
    return ridge.lm_eval.RidgeLM(exact)


def requests(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=a, idx=0) for a in arguments]


def test_loglikelihood(lm, exact):
    context, ends = "Once upon a time there was a", [" little girl", " xylophone", exact.generate(
        "Once upon a time there was a", max_tokens=3, temperature=0).text]
    got = lm.loglikelihood(requests("loglikelihood", *[(context, e) for e in ends], ("", "Once")), disable_tqdm=True)
    for (logprob, greedy), end in zip(got, ends):
        p = exact.prompt_logprobs(context + end)
        n = len(exact.encode(context))
        assert math.isclose(logprob, p.logprobs[n:].astype(np.float64).sum(), rel_tol=1e-12)
        logits = exact.logits(context + end)
        assert greedy == (logits[n - 1:-1].argmax(1) == p.ids[n:]).all()
    assert got[2][1] and got[0][0] > got[1][0] and got[3][0] < 0


def test_long_texts_and_contexts(lm, exact):
    text = "The cat sat on the mat. " * 400
    ids = exact.encode(text, add_special_tokens=False)
    assert len(ids) > lm.max_length
    rolling, = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (text,)))
    assert -10 * len(ids) < rolling < 0
    short = "The cat sat on the mat."
    alone, = lm.loglikelihood_rolling(requests("loglikelihood_rolling", (short,)))
    p = exact.prompt_logprobs([lm.prefix_token_id] + exact.encode(short, add_special_tokens=False))
    assert math.isclose(alone, p.logprobs[1:].astype(np.float64).sum(), rel_tol=1e-12)
    (cut, _), = lm.loglikelihood(requests("loglikelihood", (text, " dog")), disable_tqdm=True)
    assert math.isfinite(cut)
    with pytest.raises(ridge.InputError):
        lm.loglikelihood(requests("loglikelihood", ("a", text)), disable_tqdm=True)


def test_generate_until(lm, exact):
    want = exact.generate("The cat", max_tokens=20, temperature=0).text
    full, cut, drawn = lm.generate_until(requests(
        "generate_until", ("The cat", {"until": [], "max_gen_toks": 20, "do_sample": False, "temperature": 0.9}),
        ("The cat", {"until": [want.split()[2]], "max_gen_toks": 20}),
        ("The cat", {"until": None, "max_gen_toks": 20, "do_sample": True, "temperature": 1.5, "top_p": 0.9})))
    assert full == want and want.startswith(cut) and len(cut) < len(want) and drawn != want
    with pytest.raises(TypeError, match="num_beam"):
        lm.generate_until(requests("generate_until", ("a", {"num_beam": 2})))


def test_the_tokenizer_is_asked_rightly(lm, exact):
    assert lm.tok_encode("The cat") == exact.encode("The cat")
    talk = lm.apply_chat_template([{"role": "user", "content": "Hi"}])
    assert lm.tok_encode(talk).count(exact.info.bos_id) <= 1 or exact.info.bos_id < 0
    assert lm.chat_template(True) and lm.tokenizer_name


def test_a_task_without_a_network(tmp_path):
    rows = [{"q": "Once upon a", "choices": [" time", " zebra"], "gold": 0}, {"q": "The cat sat on", "choices": [" qqq", " the"], "gold": 1}]
    (tmp_path / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "tiny.yaml").write_text(f"""
task: ridge_tiny
dataset_path: json
dataset_kwargs: {{data_files: {{test: {tmp_path}/rows.json}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
target_delimiter: ""
metric_list: [{{metric: acc}}]
""")
    run = subprocess.run([sys.executable, "-m", "ridge.lm_eval", "--model", "ridge", "--model_args",
                          f"pretrained={TALES},recipe=exact,kv_bytes={64 << 20}", "--tasks", "ridge_tiny", "--include_path", str(tmp_path),
                          "--output_path", str(tmp_path / "out")], capture_output=True, text=True, cwd=tmp_path,
                         env={**__import__("os").environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")})
    assert run.returncode == 0, run.stderr[-3000:]
    found = json.loads(next((tmp_path / "out").rglob("results*.json")).read_text())
    assert found["results"]["ridge_tiny"]["acc,none"] == 1.0


def test_devices(exact):
    assert ridge.lm_eval.RidgeLM(exact, device="cuda:0").engine is exact  # what the harness's command line says by itself
    with pytest.raises(ridge.InputError, match="mps"):
        ridge.lm_eval.RidgeLM(exact, device="mps")


def test_it_is_registered():
    assert lm_eval.api.registry.get_model("ridge") is ridge.lm_eval.RidgeLM
    points = importlib.metadata.entry_points()
    group = points.select(group="lm_eval.models") if hasattr(points, "select") else points["lm_eval.models"]
    assert any(p.name == "ridge" and p.load() is ridge.lm_eval.RidgeLM for p in group)
