"""The contracts: what each rule refuses, and that every public function applies its rules.

Invalid values follow from the rules. Whatever the rule of an argument refuses by itself, a call
must refuse by the name of this argument, and so it must a tensor that is smaller in one dimension
than the others, or than the module. A new public function needs only valid values (``VALID``).
"""

import contextlib
import copy
import inspect
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.public import PUBLIC
from torch import Tensor, nn

from transformer_blocks import (
    DecoderCache,
    ExplicitAttention,
    FeedForward,
    KeyValueCache,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    SelfAttentionCache,
    TokenEmbedding,
    _contracts,
    add_lora,
    build_decoder,
    build_encoder,
    build_language_model,
    fused_attention,
)
from transformer_blocks._contracts import (
    Count,
    DropoutProbability,
    Factory,
    Function,
    PositiveNumber,
    Probability,
    Size,
    check,
    checked,
    one_of,
    rule_of,
)
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.loss import cross_entropy

B, L, S, D, H = 2, 3, 4, 8, 2
X, MEMORY = torch.ones(B, L, D), torch.ones(B, S, D)
QUERY, KEY = torch.ones(B, H, L, D // H), torch.ones(B, H, S, D // H)
IDS, HIDDEN = torch.ones(B, L, dtype=torch.int64), torch.zeros(B, D)

VALUES: tuple[Any, ...] = (
    *(None, True, np.True_, 0, 1, -1, 1.5, math.nan, math.inf, 11, "no", b"0", {}, object),
    *(
        [],
        [0],
        ["x"],
        [1.0],
        [None],
        [[1.0]],
        [nn.Linear],
        np.ones(3),
        torch.ones(3),
        X,
        QUERY,
        IDS,
        IDS > 1,
    ),
    *(torch.relu, nn.GELU, nn.Linear, nn.Identity(), PreNorm(D), KeyValueCache(), KeyValueCache),
)
"""What an argument may be by mistake; most rules refuse most of them."""


class Model:
    """A model with a vocabulary of ten tokens, which counts its steps."""

    steps = 0

    def step(self, tokens: Tensor) -> Tensor:
        self.steps += 1
        return torch.zeros(len(tokens), 10)

    def reorder(self, rows: Tensor) -> None: ...


class Uniform(ExplicitAttention):
    """An attention function with equal scores."""

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        return torch.zeros(*query.shape[:3], key.shape[2])


def encoder() -> Any:
    return build_encoder(num_layers=1, d_model=D, num_heads=H, d_ff=12).eval()


def decoder() -> Any:
    return build_decoder(num_layers=1, d_model=D, num_heads=H, d_ff=12).eval()


def cache() -> KeyValueCache:
    made = KeyValueCache()
    made.append(KEY, KEY)
    return made


@torch.no_grad()
def decoder_cache() -> DecoderCache:
    return decoder().new_cache(MEMORY)


def incremental_decoder() -> IncrementalDecoder:
    stack, embedding = encoder(), TokenEmbedding(9, D)
    return IncrementalDecoder(
        stack, stack.new_cache(), embed=lambda tokens, offset: embedding(tokens), output=torch.relu
    )


def adapted() -> MultiHeadAttention:
    layer = MultiHeadAttention(D, H)
    add_lora(layer, rank=2)
    return layer


OF_LAYER = {"query": X, "key": MEMORY, "value": MEMORY}
SEARCH = {"model": Model(), "start": IDS[:, 0], "max_length": 2, "end_id": 0, "beam_size": 2}
VALID = dict[str, Any](  # of all calls, where OF_CALLS has no other; the default if neither has
    **dict.fromkeys(("vocabulary_size", "source_size", "target_size", "max_length"), 9),
    **dict.fromkeys(("source", "target", "tokens", "documents"), IDS),
    **dict.fromkeys(("embedding", "source_embedding", "target_embedding"), TokenEmbedding(9, D)),
    **dict.fromkeys(("self_attention", "cross_attention"), MultiHeadAttention(D, H)),
    **dict.fromkeys(("key", "value", "keys", "values"), KEY),
    **dict[str, Any](
        d_model=D, d_k=D // H, num_heads=H, window=2, num_layers=1, step=1, rank=2, d_ff=12
    ),
    **dict[str, Any](num_key_value_heads=1, length=3, warmup_steps=9, query_length=L, start=0),
    **dict[str, Any](factor=2.0, low=2.0, high=4.0, p=0.1, prompts=[[1, 2], (3,)]),
    **dict[str, Any](x=X, memory=MEMORY, query=QUERY, queries=QUERY, lengths=IDS[:, 0]),
    **dict[str, Any](
        rows=torch.tensor([0]), residual=lambda: PreNorm(D), feed_forward=nn.Identity()
    ),
    **dict[str, Any](layers=[], encoder=encoder(), decoder=decoder(), stack=encoder()),
    **dict[str, Any](linear=nn.Linear(D, 12), embed=torch.add, output=torch.relu),
    **dict[str, Any](latent_size=4, value_size=3, rotary=RotaryPositionalEncoding(2)),
    **dict[str, Any](
        num_experts=4, top_k=2, expert=nn.Identity, factories=nn.Identity, logits=HIDDEN
    ),
    optimizer=torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0),
)
MODULES = {"output": nn.Linear(D, 9)}
OF_CALLS: dict[str, dict[str, Any]] = {
    "SingleHeadAttention.forward": OF_LAYER,
    "SingleHeadAttention.attention_weights": OF_LAYER,
    "MultiHeadAttention.forward": OF_LAYER,
    "MultiHeadAttention.attention_weights": OF_LAYER,
    "MultiHeadAttention.project": OF_LAYER,
    "LatentAttention.forward": OF_LAYER,
    "LatentAttention.attention_weights": OF_LAYER,
    "LatentAttention.project": OF_LAYER,
    "MultiHeadAttention": {"d_k": None},
    "build_encoder": {"residual": PreNorm, "feed_forward": None},
    "build_decoder": {"residual": PreNorm, "feed_forward": None, "cross_attention": None},
    "build_language_model": {"residual": PreNorm},
    "build_llama": {"residual": PreNorm, "feed_forward": None, "rotary": None},
    "build_seq2seq": {"residual": PreNorm},
    "LanguageModel": MODULES | {"decoder": encoder()},
    "ModelWithLoss": {"model": nn.Linear(D, D), "loss": torch.dist},
    "Seq2Seq": MODULES,
    "DecoderCache": {"memory": [cache()]},
    "format_mask": {"mask": torch.zeros(L, L, dtype=torch.bool), "queries": None, "keys": None},
    "linear_cross_entropy": {"hidden": HIDDEN, "weight": torch.ones(9, D), "target": IDS[:, 0]},
    "loss": {"target": IDS[:, 0]},
    "add_lora": {"model": MultiHeadAttention(D, H)},
    "merge_lora": {"model": adapted()},
    "record_router_logits": {"model": nn.Identity()},
    "IncrementalDecoder": {"cache": SelfAttentionCache(1)},
    "IncrementalDecoder.prefill": {"lengths": None},
    "greedy_search": SEARCH,
    "beam_search": SEARCH,
    "sample": SEARCH,
}
MADE: dict[str, Callable[[], Any]] = {  # objects that a constructor alone does not make
    "ExplicitAttention": Uniform,
    "Encoder": encoder,
    "Decoder": decoder,
    "KeyValueCache": cache,
    "DecoderCache": decoder_cache,
    "IncrementalDecoder": incremental_decoder,
}
HOME = "transformer_blocks."
TOOLS = f"{HOME}inspection", f"{HOME}explorer", f"{HOME}inference", f"{HOME}interop"
"""Packages whose functions need whole models or files: they are only called wrongly here."""


class Call(NamedTuple):
    """A function that is checked, its parameters, and valid values of them."""

    function: Callable[..., Any]
    parameters: dict[str, inspect.Parameter]
    valid: dict[str, Any]

    def run(self, **others: Any) -> Any:
        """Call it with valid values, except for some arguments; by place where this is possible."""
        given = self.valid | others
        if isinstance(given.get("model"), nn.Module):  # which is changed
            given["model"] = copy.deepcopy(given["model"])
        by_place = takewhile(
            lambda each: each.kind is not each.KEYWORD_ONLY and each.name in given,
            self.parameters.values(),
        )
        places = [given.pop(each.name) for each in [*by_place]]
        with torch.no_grad():
            return self.function(*places, **given)


def call_method(owner: str, method: str, *places: Any, **given: Any) -> Any:
    """Call a method of an object, which is made with the valid arguments of its class."""
    make = MADE.get(f"{owner}.{method}") or MADE.get(owner) or CALLS[owner].run
    return getattr(make(), method)(*places, **given)


def checked_functions(
    *, tools: bool
) -> Iterator[tuple[str, Callable[..., Any], Callable[..., Any]]]:
    """List the public functions, classes and methods that are checked: name, called, decorated."""
    for name, found in {**PUBLIC, "apply_dropout": apply_dropout, "loss": cross_entropy}.items():
        if getattr(found, "__module__", "").startswith(TOOLS) != tools:
            continue
        members: Any = vars(found) if isinstance(found, type) else {"": found}
        for method, function in members.items():
            if getattr(function, "__globals__", None) is not vars(_contracts):
                continue
            if method in ("", "__init__"):
                yield name, found, function  # type: ignore[misc]
            else:
                yield f"{name}.{method}", partial(call_method, name, method), function


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of what was decorated, with their rules."""
    return {
        name: each.replace(annotation=function.__annotations__.get(name, each.annotation))
        for name, each in inspect.signature(function).parameters.items()
        if name != "self"
    }


def valid_values(name: str, function: Any) -> dict[str, Any]:
    known = VALID | OF_CALLS.get(name, {})
    return {each: known[each] for each in parameters(function) if each in known}


CALLS = {
    name: Call(call, parameters(function), valid_values(name, function))
    for name, call, function in checked_functions(tools=False)
}


def refused(annotation: Any, valid: object) -> Iterator[tuple[Any, Exception]]:
    """List values that the rule of an annotation refuses, each with its error."""
    similar: tuple[Any, ...] = ()
    if isinstance(valid, Tensor):
        similar = valid.numpy(), valid.tolist(), valid.bool(), valid[0], valid[None], type(valid)
        similar += valid.long() if valid.is_floating_point() else valid.float(), valid + 0j
    for value in (*VALUES, *similar):
        try:
            check(annotation, value=value)
        except (TypeError, ValueError) as error:
            yield value, error


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_refuses_what_its_rules_refuse(call: Call) -> None:
    call.run()
    ruled = [each for each in call.parameters.values() if rule_of(each.annotation)[0] != (object,)]
    assert ruled, "a function without rules needs no decorator"
    for each in ruled:
        for value, error in refused(each.annotation, call.valid.get(each.name)):
            start = str(error).partition(" must ")[0].replace("value", each.name, 1)
            with pytest.raises(type(error)) as caught:
                call.run(**{each.name: value})
            assert str(caught.value).startswith(f"{start} must "), (value, str(caught.value))


def accepted(annotation: Any) -> Any:
    """Return a value that the rule of an annotation accepts."""
    model = build_language_model(9, num_layers=1, d_model=D, num_heads=H, d_ff=12)
    for value in (*VALUES, *VALID.values(), HIDDEN, "light", model):
        with contextlib.suppress(TypeError, ValueError):
            check(annotation, value=value)
            return value
    raise AssertionError(f"add a value to the list for {annotation}")


FUNCTIONS_OF_TOOLS = {name: each for name, _, each in checked_functions(tools=True)}


@pytest.mark.parametrize("function", FUNCTIONS_OF_TOOLS.values(), ids=FUNCTIONS_OF_TOOLS)
def test_a_tool_refuses_what_its_rules_refuse_before_it_does_anything(function: Any) -> None:
    annotations = {name: each.annotation for name, each in parameters(function).items()}
    ruled = {name: each for name, each in annotations.items() if rule_of(each)[0] != (object,)}
    valid = dict.fromkeys(annotations) | {name: accepted(each) for name, each in ruled.items()}
    itself = [SimpleNamespace()] * ("self" in inspect.signature(function).parameters)
    assert ruled
    for name, annotation in ruled.items():
        for value, error in refused(annotation, valid[name]):
            start = str(error).partition(" must ")[0].replace("value", name, 1)
            with pytest.raises(type(error)) as caught:
                function(*itself, **valid | {name: value})
            assert str(caught.value).startswith(f"{start} must "), (value, str(caught.value))


def shapes(call: Call) -> dict[str, list[str]]:
    """The letters of the arguments that are tensors of a certain shape, from the message."""
    found = {}
    for name, each in call.parameters.items():
        if isinstance(valid := call.valid.get(name), Tensor):
            try:
                check(each.annotation, value=valid.new_ones(()))
            except ValueError as error:
                found[name] = re.findall(r"\w+", str(error).partition("shape")[2].partition(")")[0])
    return found


def test_a_tensor_must_have_the_sizes_of_the_others_and_of_the_module() -> None:
    tried = 0
    for name, call in CALLS.items():
        letters = shapes(call)
        owner: Any = MADE.get(name.partition(".")[0]) or CALLS.get(name.partition(".")[0])
        made = getattr(owner, "run", owner)() if "." in name else None
        known = set(vars(made)) if isinstance(made, nn.Module) else set()
        for argument, own in letters.items():
            others = {each for key, found in letters.items() if key != argument for each in found}
            for place, letter in enumerate(own):
                x = call.valid[argument]
                if letter not in others | known or (place < len(own) - 1 and letter not in others):
                    continue
                with pytest.raises(ValueError, match=r" must (agree in|have shape) "):
                    call.run(**{argument: x.narrow(place, 0, x.shape[place] - 1)})
                tried += 1
    assert tried > 90


ANY_FUNCTION: Any = Function
ANY_FACTORY: Any = Factory


@pytest.mark.parametrize(
    ("annotation", "accepted", "refused"),
    [
        (bool, [True, False], [0, 1, None, "no", np.True_]),
        (int, [-1, 0, 2**63 - 1], [True, 1.0, "1", None]),
        (float, [-1, 0.0, 1.5], [True, "1", None, math.nan, math.inf, -math.inf, torch.ones(())]),
        (Size, [1, 10**9], [0, -1, True, 1.0]),
        (Count, [0, 1], [-1, False, 0.0]),
        (PositiveNumber, [1, 0.1], [0, -1.0, math.nan, math.inf]),
        (Probability, [0, 0.5, 1.0], [-0.1, 1.1, math.nan, True]),
        (DropoutProbability, [0, 0.9], [-0.1, 1, 1.0]),
        (Annotated[str, one_of("mean", "sum")], ["sum"], ["max", None, 1]),
        (Size | None, [None, 1], [0]),
        (nn.Module | None, [None, nn.ReLU()], [nn.ReLU, torch.relu, "relu"]),
        (list[int], ["anything"], []),
        (Sequence[Size], [[], [1], (2,)], [1, torch.ones(()), [0], [None]]),
        (Sequence[str], [["yes"]], ["no", [1]]),
        (torch.device | str | None, ["cpu", torch.device("cpu"), 1.0], []),
        (ANY_FUNCTION, [torch.relu, nn.ReLU()], [nn.ReLU, "relu", None]),
        (ANY_FACTORY, [nn.ReLU, lambda: 1], [nn.ReLU(), None]),
    ],
    ids=range(17),  # a rule's own text holds the address of a function
)
def test_a_rule_refuses_all_other_values(annotation: Any, accepted: Any, refused: Any) -> None:
    check(annotation, **{str(number): each for number, each in enumerate(accepted)})
    for each in refused:
        with pytest.raises((TypeError, ValueError), match=r"^size(\[0\])? must "):
            check(annotation, size=each)


def test_help_shows_plain_annotations() -> None:
    signature = str(inspect.signature(FeedForward))
    assert "d_model: int, d_ff: int, *, activation: collections.abc.Callable[" in signature
    layer = str(inspect.signature(MultiHeadAttention.forward))
    assert "key: Optional[torch.Tensor] = None" in layer
    for name, found in PUBLIC.items():
        for method, function in (*vars(found).items(), ("", found)):
            if inspect.isfunction(function) and method in ("__init__", method.strip("_")):
                # A rule that is shown is one that nothing applies.
                assert "Annotated" not in str(inspect.signature(function)), (name, method)


def test_a_decorated_function_is_called_by_place_and_by_name_with_its_defaults() -> None:
    @checked
    def add(a: Size, b: Size = 2, *, c: Size | None = None) -> int:
        return a + b + (c or 0)

    assert add(1) == 3
    assert add(1, 2, c=3) == add(a=1, b=2, c=3) == 6
    for places, names in (((0,), {}), ((1, 0), {}), ((1,), {"b": 0}), ((1,), {"c": 0})):
        with pytest.raises(ValueError, match=r"^[abc] must be positive, got [abc]=0$"):
            add(*places, **names)


def test_autocast_accepts_what_it_casts_and_nothing_else() -> None:
    layer, x, memory = MultiHeadAttention(D, H), torch.randn(B, L, D), torch.randn(B, S, D)
    expected = layer(x, memory, memory)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, memory.bfloat16(), memory.half())
        FeedForward(D, 12)(x.half())
        LearnedPositionalEncoding(D, max_length=9)(x.bfloat16())
        with pytest.raises(RuntimeError, match="must have the same dtype"):
            layer(x.double(), memory, memory)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    "attention_function",
    [Uniform(), lambda query, key, value, **options: query, fused_attention],
    ids=["module", "function", "default"],
)
def test_a_layer_checks_masks_for_any_attention_function(attention_function: Any) -> None:
    layer, mask = MultiHeadAttention(D, H, attention_function=attention_function), X[0, :, :L] > 1
    layer(X, X, X, mask=mask)
    for invalid in (mask.float(), mask.tolist(), mask[:, :2], mask[None], "causal"):
        with pytest.raises((TypeError, ValueError), match=r"^mask must "):
            layer(X, X, X, mask=invalid)
