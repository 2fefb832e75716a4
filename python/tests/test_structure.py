"""Structured output, conversations, and the tokenizer."""
import json
import re

import pytest

import ridge
from conftest import TALES, command

TALK = [{"role": "user", "content": "Tell me a story about a dog."}]


@pytest.mark.parametrize("grammar, holds", [
    (ridge.Grammar.json_schema({"type": "object", "properties": {"n": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["n"]}),
     lambda t: 0 <= json.loads(t)["n"] <= 99 and len(json.loads(t)) == 1),
    (ridge.Grammar.json_schema('{"type": "boolean"}'), lambda t: json.loads(t) in (True, False)),
    (ridge.Grammar.regex("[a-c]{3}-[0-9]{2}"), lambda t: re.fullmatch("[a-c]{3}-[0-9]{2}", t)),
    (ridge.Grammar.choice(["the red \"ball\"", "blue"]), lambda t: t in ("the red \"ball\"", "blue")),
    (ridge.Grammar.gbnf('root ::= "a" | "b" tail\ntail ::= [a-z] "c"'), lambda t: re.fullmatch("a|b[a-z]c", t)),
    (ridge.Grammar.lark('start: "x" NUMBER\nNUMBER: /[0-9]{2}/'), lambda t: re.fullmatch("x[0-9]{2}", t)),
], ids=["schema", "schema text", "regex", "choice", "gbnf", "lark"])
def test_answers_are_bound(tales, grammar, holds):
    for answer in tales.generate("The answer is", grammar=grammar, n=3, seed=1, max_tokens=120).answers:
        assert answer.finish_reason == "stop" and holds(answer.text), answer


def test_pydantic_models_and_text_before(tales):
    class Model:  # as Pydantic's
        @staticmethod
        def model_json_schema():
            return {"enum": [7]}

    assert tales.generate("Seven:", grammar=ridge.Grammar.json_schema(Model), max_tokens=9).text == "7"
    after = tales.generate("Once upon a time", temperature=0, max_tokens=30).text.split()[1]
    answer = tales.generate("Once upon a time", temperature=0, max_tokens=40, grammar=ridge.Grammar.choice(["zz"], after=after))
    assert re.fullmatch(r".*?\s*zz", answer.text, re.S) and after in answer.text
    assert tales.generate("Say:", grammar=ridge.Grammar.json(), max_tokens=8, seed=2).text.startswith("{")


def test_a_bad_grammar_is_refused(tales):
    with pytest.raises(ridge.RidgeError, match="nowhere"):
        tales.generate("a", grammar=ridge.Grammar.gbnf("root ::= nowhere"))
    with pytest.raises(ridge.InputError):
        tales.generate("a", grammar=ridge.Grammar.regex("("))


def test_conversations(tales):
    want = command("render", TALES, text=json.dumps(TALK))
    assert tales.has_chat_template
    assert tales.render(TALK) == want["text"]
    assert tales.encode_chat(TALK) == want["ids"]
    bare = command("render", TALES, "--no-generation-prompt", text=json.dumps(TALK))
    assert tales.render(TALK, add_generation_prompt=False) == bare["text"]
    reply = tales.chat(TALK, max_tokens=16, temperature=0)
    assert reply.ids == tales.generate(want["ids"], max_tokens=16, temperature=0).ids
    assert "".join(map(str, tales.stream_chat(TALK, max_tokens=16, temperature=0))) == reply.text
    several = tales.chat([TALK, TALK], max_tokens=16, temperature=0)
    assert [r.text for r in several] == [reply.text] * 2
    begun = TALK + [{"role": "assistant", "content": "The dog"}]
    assert tales.render(begun, add_generation_prompt=False, continue_final_message=True).endswith("The dog")
    assert tales.chat(begun, continue_final_message=True, max_tokens=8).text
    with pytest.raises(ridge.RidgeError):
        tales.chat([{"content": "no role"}])


def test_tools_and_variables_reach_the_template(tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{{ tools[0].function.name }}|{{ mood }}|{{ messages[0].content }}")
    with ridge.open(TALES, chat_template=template, kv_bytes=32 << 20) as engine:
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
        assert engine.render(TALK, [tool], variables={"mood": "gay"}) == "weather|gay|" + TALK[0]["content"]


def test_tokenizer(tales):
    for text in ("Once upon a time", "héllo wörld ☃", "", "a\0b", "<s>"):
        want = command("tokenize", TALES, "-p", text)["ids"] if "\0" not in text else tales.encode(text.encode())
        assert tales.encode(text) == want
        assert tales.decode(tales.encode(text, add_special_tokens=False, plain=True)) == text
    assert tales.encode("a", add_special_tokens=False) == command("tokenize", TALES, "-p", "a", "--no-special")["ids"]
    ids = tales.encode("The cat sat", add_special_tokens=False)
    assert b"".join(tales.id_bytes(i) for i in ids).strip() == b"The cat sat"
    assert tales.decode([tales.info.eos_ids[0]], skip_special_tokens=True) == ""
    for bad in (-1, tales.vocab_size):
        with pytest.raises(ridge.InputError):
            tales.id_bytes(bad)


def test_marks_are_shown(tales):
    mark = tales.info.eos_ids[0]
    name = tales.decode([mark])
    with ridge.open(TALES, kv_bytes=32 << 20) as engine:
        engine.show([name])
        first = {"max_tokens": 2, "temperature": 0, "ignore_eos": True, "logit_bias": {mark: 100.0}}
        assert engine.generate("The cat", show_marks=True, **first).text == name * 2
        assert engine.generate("The cat", **first).text == ""
        with pytest.raises(ridge.InputError):
            engine.show(["no special token, but a text"])
