"""ridge as a model of lm-evaluation-harness.

    pip install lm-eval
    ridge-lm-eval --model ridge --model_args pretrained=path/to/model,recipe=exact --tasks ...

`ridge-lm-eval` is lm-eval's own command line with this model known to it.  From Python:

    import lm_eval, ridge.lm_eval
    lm_eval.simple_evaluate(model="ridge", model_args={"pretrained": "path/to/model"}, tasks=[...])

Options of `ridge.open` are model arguments.  All requests of a task run in one batch; batch_size has no meaning here."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import lm_eval.utils as utils
import numpy as np
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model

from . import engine as _engine
from .engine import Engine
from .errors import InputError
from .params import Params

__all__ = ["RidgeLM", "main"]

DEVICES = (None, "", "cpu", "cuda:0")  # the last is what the harness says where nobody said anything
LENGTHS = ("max_gen_toks", "max_tokens", "max_new_tokens", "max_length")  # what tasks call the length of an answer


@register_model("ridge")
class RidgeLM(TemplateLM):
    def __init__(self, pretrained: Union[str, Engine], max_gen_toks: int = 256, batch_size: Any = None, max_batch_size: Any = None,
                 device: Optional[str] = None, **options: Any) -> None:
        super().__init__()
        if device not in DEVICES:
            raise InputError(f"device is {device!r}: ridge runs on the CPU")
        self.engine = pretrained if isinstance(pretrained, Engine) else _engine.open(pretrained, **options)
        self.max_gen_toks = max_gen_toks
        text, whole = self.engine.encode("a", add_special_tokens=False), self.engine.encode("a")
        self._before = whole[:next(i for i in range(len(whole)) if whole[i:i + len(text)] == text)]  # what is added: BOS

    # ---- what the harness asks of the tokenizer ----

    @property
    def eot_token_id(self) -> int:
        return self.engine.info.eos_ids[0]

    @property
    def prefix_token_id(self) -> int:
        return self.engine.info.bos_id if self.engine.info.bos_id >= 0 else self.eot_token_id

    @property
    def max_length(self) -> int:
        return self.engine.info.max_seq_len

    @property
    def tokenizer_name(self) -> str:
        return str(self.engine.path).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> List[int]:
        ids = self.engine.encode(string, add_special_tokens=False)
        n = len(self._before)
        has = n and ids[:n] == self._before  # a rendered conversation begins with it
        return ids if add_special_tokens is False or (has and add_special_tokens is None) else self._before + ids

    def chat_template(self, chat_template: Union[bool, str] = False) -> str:
        return self.engine.card["chat_template"] if chat_template else ""

    def apply_chat_template(self, chat_history: List[Dict[str, Any]], add_generation_prompt: bool = True, **_: Any) -> str:
        return self.engine.render(chat_history, add_generation_prompt=add_generation_prompt,
                                  continue_final_message=not add_generation_prompt)

    # ---- what it asks of the model ----

    def _loglikelihood_tokens(self, requests: Sequence[Tuple[Any, List[int], List[int]]], **_: Any) -> List[Tuple[float, bool]]:
        prompts = []
        for _key, context, continuation in requests:
            if len(continuation) >= self.max_length:
                raise InputError(f"a continuation has {len(continuation)} ids, and the context holds {self.max_length}")
            prompts.append((context + continuation)[-self.max_length:])
        found = []
        for (key, _context, continuation), p in zip(requests, self.engine.prompt_logprobs(prompts)):
            n = len(continuation)
            logprobs, ranks = p.logprobs[len(p.ids) - n:], p.ranks[len(p.ids) - n:]
            answer = (float(logprobs.astype(np.float64).sum()), bool((ranks == 1).all()))
            found.append(answer)
            if key is not None:
                self.cache_hook.add_partial("loglikelihood", key, answer)
        return found

    def loglikelihood_rolling(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> List[float]:
        windows, counts = [], []
        for request in requests:
            own = [utils.make_disjoint_window(w) for w in utils.get_rolling_token_windows(
                token_list=self.engine.encode(request.args[0], add_special_tokens=False), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1, context_len=1)]
            windows += [(None, context, continuation) for context, continuation in own]
            counts.append(len(own))
        each = iter(self._loglikelihood_tokens(windows))
        found = [sum(next(each)[0] for _ in range(n)) for n in counts]
        for request, total in zip(requests, found):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, total)
        return found

    def _params(self, asked: Dict[str, Any]) -> Params:
        """Of what a task asks for; unknown names are refused by Params."""
        rest = {**asked}
        until = rest.pop("until", None) or []
        length = next((rest.pop(name) for name in LENGTHS if name in rest), self.max_gen_toks)
        if not rest.pop("do_sample", rest.get("temperature", 0) > 0):
            rest["temperature"] = 0.0
        return Params(max_tokens=length, stop=[until] if isinstance(until, str) else until, seed=0).replace(**rest)

    def generate_until(self, requests: Sequence[Instance], disable_tqdm: bool = False) -> List[str]:
        params = [self._params(r.args[1]) for r in requests]
        prompts = []
        for request, p in zip(requests, params):
            room = self.max_length - (p.max_tokens or 0)
            if room < 1:
                raise InputError(f"an answer may have {p.max_tokens} ids, and the context holds {self.max_length}")
            prompts.append(self.tok_encode(request.args[0])[-room:])
        texts = [r.text for r in self.engine.generate(prompts, params)]
        for request, text in zip(requests, texts):
            self.cache_hook.add_partial("generate_until", request.args, text)
        return texts


def main() -> None:
    """lm-eval's command line."""
    from lm_eval.__main__ import cli_evaluate
    cli_evaluate()


if __name__ == "__main__":
    main()
