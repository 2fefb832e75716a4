"""Embeddings and scores are those of `ridge embed`, and of the implementations that made the goldens."""
import numpy as np
import pytest

import ridge
from conftest import GOLDEN, TALES, command, float32, tensors

EXACT = {"recipe": "exact", "kv_bytes": 64 << 20, "n_threads": 2}
TEXTS = ["The cat sat on the mat.", "Dogs"]


@pytest.mark.parametrize("pool", [None, "mean", "last", "cls"])
def test_the_bits_of_ridge_embed(pool):
    flags = ["--pool", pool] if pool else []
    with ridge.open(TALES, **EXACT) as engine:
        got = engine.embed(TEXTS, pooling=pool or "model")
        assert got.dtype == np.float32 and got.shape == (2, engine.info.dim)
        for row, text in zip(got, TEXTS):
            assert row.tobytes() == float32(command("embed", TALES, "-p", text, *flags)["embedding"]).tobytes()
        unit = engine.embed(TEXTS[0], pooling=pool or "model", normalize=True)
        printed = command("embed", TALES, "-p", TEXTS[0], "--normalize", *flags)["embedding"]
        assert np.allclose(unit, printed, rtol=2e-7, atol=0)  # quotients of doubles, printed with nine digits: rounded twice
        assert engine.embed([]).shape == (0, engine.info.embed_dim)
        assert (engine.embed(engine.encode(TEXTS[0])) == engine.embed(TEXTS[0])).all()
        short = engine.embed(TEXTS, dim=8, normalize=True)
        assert short.shape == (2, 8) and np.allclose((short ** 2).sum(1), 1)
        for bad in ({"dim": 0}, {"dim": 10 ** 6}, {"pooling": "median"}):
            with pytest.raises(ridge.InputError):
                engine.embed(TEXTS, **bad)


@pytest.mark.parametrize("model", ["embedding-gemma", "qwen3-embedding"])
def test_sentence_transformers_goldens(model):
    golden = tensors(GOLDEN / model / "golden.safetensors")
    with ridge.open(GOLDEN / model, kv_type="f32", **EXACT) as engine:
        both = engine.embed([golden["input_ids"], golden["input_ids"][:21]])
        assert np.allclose(both, [golden["embedding"], golden["short.embedding"]], atol=1e-4)
        assert engine.embed(golden["input_ids"], pooling="mean").shape == (engine.info.dim,)


@pytest.mark.parametrize("model", ["llama", "gemma3", "mixtral", "mamba", "deepseek-v2", "gpt2"])
def test_logits_are_those_of_the_goldens(model):
    golden = tensors(GOLDEN / model / "golden.safetensors")
    with ridge.open(GOLDEN / model, kv_type="f32", **EXACT) as engine:
        assert not engine.info.has_tokenizer
        logits = engine.logits(golden["input_ids"])
        assert np.abs(logits - golden["logits"]).max() < 3e-4
        assert engine.generate(golden["input_ids"], max_tokens=8, temperature=0, ignore_eos=True).text == ""
        with pytest.raises(ridge.RidgeError, match="tokenizer"):
            engine.encode("a")


def test_the_bits_of_ridge_logits(tmp_path, exact):
    ids = exact.encode("Once upon a time there was a dog")
    command("logits", TALES, "--ids", ",".join(map(str, ids)), "-o", tmp_path / "logits.safetensors")
    assert exact.logits(ids).tobytes() == tensors(tmp_path / "logits.safetensors")["logits"].tobytes()


def test_scores_of_pairs(reranker):
    query, documents = "ab c", ["c ba", "abc", "a"]
    with ridge.open(reranker, **EXACT) as engine:
        assert "encoder" in repr(engine.info) or engine.info.is_encoder
        want = [command("embed", reranker, "-p", query, "--pair", d)["score"] for d in documents]
        got = engine.score([(query, d) for d in documents])
        assert got.tobytes() == float32(want).tobytes()
        ranked = engine.rerank(query, documents)
        assert [r.index for r in ranked] == sorted(range(3), key=lambda i: -want[i])
        assert ranked[0].document == documents[ranked[0].index] and len(engine.rerank(query, documents, top_n=2)) == 2
        with pytest.raises(ridge.UnsupportedError):
            engine.generate("a")
        golden = tensors(GOLDEN / "bert-rerank" / "golden.safetensors")
        assert np.allclose(engine.embed(golden["input_ids"], pooling="mean"), golden["pooled.mean"], atol=1e-4)
    with ridge.open(TALES, **EXACT) as engine, pytest.raises(ridge.UnsupportedError, match="head"):
        engine.score([("a", "b")])
