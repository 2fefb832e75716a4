"""Answers: the same ids and log-probabilities as `ridge run`, in any company."""
import threading

import numpy as np
import pytest

import ridge
from conftest import GOLDEN, SMALL, TALES, command, float32, tensors

PROMPT = "Once upon a time there was a little dog"


@pytest.mark.parametrize("flags, params", [
    (["--temperature", "0"], {"temperature": 0}),
    (["--seed", "11", "--temperature", "0.8", "--top-k", "40"], {"seed": 11, "temperature": 0.8, "top_k": 40}),
    (["--seed", "3", "--min-p", "0.05", "--repetition-penalty", "1.2", "--stop", "."],
     {"seed": 3, "min_p": 0.05, "repetition_penalty": 1.2, "stop": "."}),
    (["--seed", "5", "--logit-bias", "300=2.5", "--dry-multiplier", "0.8", "--xtc-probability", "0.5"],
     {"seed": 5, "logit_bias": {300: 2.5}, "dry_multiplier": 0.8, "xtc_probability": 0.5}),
    (["--seed", "9", "--mirostat", "2"], {"seed": 9, "mirostat": 2}),
])
def test_the_bits_of_ridge_run(tales, flags, params):
    want = command("run", TALES, "-p", PROMPT, "-n", 48, "--logprobs", 3, *flags)
    got = tales.generate(PROMPT, max_tokens=48, logprobs=3, **params)
    assert got.prompt_ids == want["prompt_ids"]
    assert got.ids == want["ids"]
    assert got.text == want["text"]
    assert got.finish_reason == want["finish_reason"]
    assert got.logprobs.tobytes() == float32([x["logprob"] for x in want["logprobs"]]).tobytes()
    for ours, theirs in zip(got.top_logprobs, want["logprobs"]):
        assert [t for t, _ in ours] == [t["id"] for t in theirs["top"]]
        assert float32([p for _, p in ours]).tobytes() == float32([t["logprob"] for t in theirs["top"]]).tobytes()


def test_several_answers_and_beams(tales):
    want = command("run", TALES, "-p", PROMPT, "-n", 20, "--n", 3, "--seed", 4)["choices"]
    got = tales.generate(PROMPT, max_tokens=20, n=3, seed=4)
    assert [a.ids for a in got.answers] == [c["ids"] for c in want]
    want = command("run", TALES, "-p", PROMPT, "-n", 12, "--beams", 4, "--n", 2)["choices"]
    got = tales.generate(PROMPT, max_tokens=12, n_beams=4, n=2)
    assert [a.ids for a in got.answers] == [c["ids"] for c in want]
    assert [float(f"{a.score:.9g}") for a in got.answers] == [c["score"] for c in want]  # printed with nine digits
    best = tales.generate(PROMPT, max_tokens=8, n=1, best_of=3, seed=1)
    assert best.answers[0].score <= 0 and best.usage.n_prompt == len(best.prompt_ids)


def test_a_batch_gives_what_each_prompt_gives_alone(tales):
    prompts = [PROMPT, "The cat", [1, 300, 301], np.array([5, 6, 7, 8]), "One day", b"The bird"]
    params = [ridge.Params(max_tokens=10 + 3 * i, seed=i, logprobs=0) for i in range(len(prompts))]
    alone = [tales.generate(p, q) for p, q in zip(prompts, params)]
    together = tales.generate(prompts, params)
    for a, b in zip(alone, together):
        assert a.ids == b.ids and a.text == b.text and a.logprobs.tobytes() == b.logprobs.tobytes()
    assert tales.generate([]) == []
    many = tales.generate(["The cat"] * 300, max_tokens=2, seed=1)  # more than the engine runs at once
    assert len(many) == 300 and all(m.ids == many[0].ids for m in many)


def test_a_full_queue_is_waited_for():
    with ridge.open(TALES, max_seqs=1, max_waiting=1, **SMALL) as engine:
        texts = engine.generate(["The cat"] * 12, max_tokens=3, temperature=0)
        assert len({t.text for t in texts}) == 1
        held = []
        with pytest.raises(ridge.BusyError) as e:
            for _ in range(8):
                held.append(engine.submit("The cat", max_tokens=400, ignore_eos=True))
        assert e.value.retry_after >= 1 and len(held) >= 1
        for r in held:
            r.close()


def test_a_stream_is_the_answer(tales):
    want = tales.generate(PROMPT, max_tokens=30, seed=2, logprobs=1)
    tokens = list(tales.stream(PROMPT, max_tokens=30, seed=2, logprobs=1))
    assert "".join(map(str, tokens)) == want.text
    assert [t.id for t in tokens if t.id >= 0] == want.ids
    assert [t.logprob for t in tokens if t.id >= 0] == want.logprobs.tolist()
    assert [t.finish_reason for t in tokens if t.finish_reason] == [want.finish_reason]
    assert all(t.text == "" or t.text.encode() for t in tokens)


def test_what_stopped_an_answer_is_told(tales):
    free = tales.generate(PROMPT, max_tokens=40, temperature=0)
    word = free.text.split()[4]
    by_text = tales.generate(PROMPT, max_tokens=40, temperature=0, stop=["%%%", word]).answers[0]
    assert by_text.finish_reason == "stop" and by_text.stop == word and free.text.startswith(by_text.text)
    assert word not in by_text.text
    by_id = tales.generate(PROMPT, max_tokens=40, temperature=0, stop_ids=[free.ids[6]]).answers[0]
    assert by_id.stop == free.ids[6] and by_id.ids == free.ids[:free.ids.index(free.ids[6])]
    assert tales.generate(PROMPT, max_tokens=5, temperature=0).finish_reason == "length"


def test_cancel_and_leave(tales):
    request = tales.submit(PROMPT, max_tokens=400, ignore_eos=True)
    next(request)
    request.cancel()
    result = request.result()
    assert result.finish_reason == "cancelled" and len(result.ids) < 400
    assert request.ended and request.poll() is None
    for token in tales.stream(PROMPT, max_tokens=400, ignore_eos=True):
        break
    request.close()
    request.close()
    with pytest.raises(ridge.ClosedError):
        next(request)
    assert "closed" in repr(request)
    del token
    for _ in range(200):
        if not tales.stats()["n_running"]:
            break
        threading.Event().wait(0.05)
    assert tales.stats()["n_running"] == 0
    assert tales.generate(PROMPT, max_tokens=400, ignore_eos=True, deadline_s=1e-9).finish_reason == "deadline"


def test_threads_ask_at_once(tales):
    want = [tales.generate(PROMPT, max_tokens=24, seed=i).ids for i in range(6)]
    got = [None] * 6

    def ask(i):
        got[i] = tales.generate(PROMPT, max_tokens=24, seed=i).ids

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == want


def test_threads_share_a_request(tales):
    want = tales.generate(PROMPT, max_tokens=60, seed=1, ignore_eos=True).ids
    request, got, lock = tales.submit(PROMPT, max_tokens=60, seed=1, ignore_eos=True), [], threading.Lock()

    def read():
        for token in request:
            with lock:
                got.append(token.id)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(i for i in got if i >= 0) == sorted(want)
    request.close()


def test_the_prompt_itself(tales, exact):
    p = tales.prompt_logprobs(PROMPT, top=3)
    assert p.ids.tolist() == tales.encode(PROMPT)
    assert np.isnan(p.logprobs[0]) and p.ranks[0] == 0 and p.top[0] == []
    assert (p.ranks[1:] >= 1).all() and (p.logprobs[1:] <= 0).all() and all(len(t) == 3 for t in p.top[1:])
    both = tales.prompt_logprobs([PROMPT, "The cat"])
    assert both[0].logprobs[1:].tobytes() == p.logprobs[1:].tobytes() and len(both) == 2
    whole = tales.generate(PROMPT, max_tokens=4, temperature=0, prompt_logprobs=2, prompt_logits=True, logprobs=0)
    assert whole.prompt_logprobs.logprobs[1:].tobytes() == p.logprobs[1:].tobytes()
    assert whole.prompt_logits.shape == (len(p.ids), tales.vocab_size)
    assert whole.prompt_logits[-1].argmax() == whole.ids[0]
    logits = exact.logits(PROMPT)
    ids, of_exact = exact.encode(PROMPT), exact.prompt_logprobs(PROMPT)
    wide = logits.astype(np.float64)
    logprobs = wide - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True)) - wide.max(1, keepdims=True)
    assert np.allclose(logprobs[np.arange(len(ids) - 1), ids[1:]], of_exact.logprobs[1:], atol=1e-5)


def test_logprobs_of_what_is_drawn(tales):
    raw, drawn = (tales.generate(PROMPT, max_tokens=12, seed=4, top_k=2, temperature=0.5, logprobs=2, logprobs_drawn=d) for d in (False, True))
    assert raw.ids == drawn.ids
    for top in drawn.top_logprobs:
        assert abs(sum(np.exp(p) for _, p in top) - 1) < 1e-5  # two ids are left, and share all
    assert raw.logprobs.tobytes() != drawn.logprobs.tobytes()


def test_reasoning_has_a_budget(tales):
    end = tales.encode(" the", add_special_tokens=False)
    got = tales.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True, thinking=ridge.Thinking(budget=5, end=end))
    free = tales.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True)
    assert any(got.ids[i:i + len(end)] == end for i in range(6)) and len(got.ids) == 20
    with ridge.open(TALES, draft="ngram", preempt="recompute", **SMALL) as engine:
        told = engine.generate(PROMPT, max_tokens=20, temperature=0, ignore_eos=True, predicted=free.ids)
        assert told.ids == free.ids and told.usage.n_predicted_accepted > 0


def test_weights_are_replaced():
    with ridge.open(TALES, **SMALL) as engine:
        before = engine.generate(PROMPT, max_tokens=8, temperature=0).ids
        engine.update_weights(TALES)
        assert engine.generate(PROMPT, max_tokens=8, temperature=0).ids == before and engine.stats()["n_updates"] == 1
        with pytest.raises(ridge.RidgeError):
            engine.update_weights(GOLDEN / "llama")


def test_rows_in_place_of_ids():
    with ridge.open(GOLDEN / "llama", **SMALL) as engine:
        ids = [5, 6, 7, 8, 9, 10, 11]
        rows = tensors(GOLDEN / "llama" / "model.safetensors")["model.embed_tokens.weight"][ids]
        how = {"max_tokens": 8, "temperature": 0, "ignore_eos": True, "logprobs": 0, "prompt_logprobs": 0}
        want = engine.generate(ids, **how)
        got = engine.generate([5, -1, -1, 8, 9, -1, 11], given={5: rows[5:6], 1: rows[1:3].astype(np.float64).tolist()}, **how)
        assert got.ids == want.ids and got.logprobs.tobytes() == want.logprobs.tobytes()
        assert np.isnan(got.prompt_logprobs.logprobs).tolist() == [True, True, True, False, False, True, False]
        assert got.prompt_logprobs.logprobs[[3, 4, 6]].tobytes() == want.prompt_logprobs.logprobs[[3, 4, 6]].tobytes()
        for given, said in (({1: rows[1:2, 1:]}, "shape"), ({1: rows[1]}, "shape"), ({0: rows[:1]}, "-1"), ({}, "-1"), ({2**31: rows[:1]}, "given|at")):
            with pytest.raises(ridge.InputError, match=said):
                engine.generate([5, -1, 7], given=given, **how)


def test_tree_search(tales):
    found = tales.search("The cat", max_tokens=6, simulations=12, width=3)
    assert found.n_simulations >= 1 and len(found.ids) <= 6 and found.text
    short = tales.search("The cat", max_tokens=6, simulations=12, score=lambda ids, logprobs: -len(ids) + 0 * logprobs.sum())
    assert short.score == -len(short.ids)

    def broken(ids, logprobs):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        tales.search("The cat", max_tokens=6, score=broken)


def test_a_fork_goes_on_as_if_asked_alone(tales):
    more = tales.encode(" And then", add_special_tokens=False)
    with tales.submit("The cat", max_tokens=12, seed=1) as source:
        first = source.result()
        with source.fork(8, more, max_tokens=10, seed=2) as fork:
            got = fork.result()
    want = tales.generate(first.prompt_ids + first.ids[:8] + more, max_tokens=10, seed=2)
    assert got.ids == want.ids
    with tales.submit("The cat", max_tokens=2) as source, pytest.raises(ridge.InputError, match="so far"):
        source.fork(3)
