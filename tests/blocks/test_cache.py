"""Caches: a cached step gives what a full pass over the whole prefix gives."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generation.interruption import InterruptedAt
from torch import Tensor

from transformer_blocks import (
    Decoder,
    DecoderCache,
    DecoderLayer,
    Encoder,
    KeyValueCache,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    build_decoder,
    build_encoder,
    padding_mask,
)
from transformer_blocks.inference import prepare

SOURCES = torch.tensor([[5, 6, 7, 8, 9], [4, 3, 0, 0, 0], [8, 1, 1, 2, 0]])  # 0 is padding
MASK = padding_mask(SOURCES)
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}


def make_decoder(**options: Any) -> Decoder:
    return build_decoder(**SIZES | options).eval()


def make_encoder(**options: Any) -> Encoder:
    return build_encoder(**SIZES | options).eval()


def make_memory(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(len(SOURCES), SOURCES.shape[1], 16, dtype=dtype)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
@torch.no_grad()
def test_cached_steps_of_any_length_equal_one_full_pass(
    residual: type[Residual], dtype: torch.dtype, limit: float
) -> None:
    decoder, memory = make_decoder(residual=residual).to(dtype), make_memory(dtype)
    x = torch.randn(len(SOURCES), 40, 16, dtype=dtype)
    whole = decoder(x, memory, memory_mask=MASK)
    for sizes in ([1] * 40, [40], [3, 1, 1, 20, 15], [17, 1, 22]):
        cache = decoder.new_cache(memory, memory_mask=MASK)
        steps = [decoder(part, cache=cache) for part in x.split(sizes, dim=1)]
        assert cache.length == 40
        torch.testing.assert_close(torch.cat(steps, dim=1), whole, rtol=0, atol=limit)


@st.composite
def reorderings(draw: st.DrawFn) -> list[list[int]]:
    """Indices of ``reorder`` after each step: permuted, dropped, repeated, or beams of sources."""
    rows, chosen = len(SOURCES), []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            beams = draw(st.integers(1, 3))
            sources = draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=3))
            chosen.append([row for row in sources for _ in range(beams)])
        else:
            chosen.append(draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=6)))
        rows = len(chosen[-1])
    return chosen


@settings(max_examples=20)
@given(reorderings())
@torch.no_grad()
def test_rows_may_be_reordered_repeated_and_dropped(chosen: list[list[int]]) -> None:
    decoder, memory = make_decoder().double(), make_memory()
    cache = decoder.new_cache(memory, memory_mask=MASK)
    prefix = torch.zeros(len(SOURCES), 0, 16, dtype=torch.float64)
    sources = torch.arange(len(SOURCES))
    for rows in [list(range(len(SOURCES))), *chosen]:
        if cache.length:
            cache.reorder(torch.tensor(rows))
        prefix, sources = prefix[rows], sources[rows]
        new = torch.randn(len(rows), 1, 16, dtype=torch.float64)
        prefix = torch.cat((prefix, new), dim=1)
        whole = decoder(prefix, memory[sources], memory_mask=MASK[sources])
        torch.testing.assert_close(decoder(new, cache=cache), whole[:, -1:], rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_memory_is_projected_once_and_shared_by_the_beams_of_a_source() -> None:
    decoder = make_decoder().double()
    projections: list[int] = []
    for index in range(2):
        decoder.get_submodule(
            f"layers.{index}.cross_attention.key_projection"
        ).register_forward_hook(lambda _, __, keys: projections.append(len(keys)))
    cache = decoder.new_cache(make_memory(), memory_mask=MASK)
    addresses = [each.read()[0].data_ptr() for each in cache.memory]
    cache.reorder(torch.arange(3).repeat_interleave(4))
    for rows in ([1, 0, 3, 3, 5, 4, 4, 7, 8, 8, 8, 8], list(range(8)), [3, 3, 0, 1, 4, 5, 6, 7]):
        decoder(torch.randn(cache.layers[0].rows or 12, 1, 16, dtype=torch.float64), cache=cache)
        cache.reorder(torch.tensor(rows))
    assert [each.rows for each in cache.layers] == [8, 8]
    assert [each.rows for each in cache.memory] == [2, 2]
    assert [each.read()[0].data_ptr() for each in cache.memory] == addresses
    assert projections == [3, 3]


@torch.no_grad()
def test_the_first_rows_of_a_cache_stay_where_they_are() -> None:
    cache = KeyValueCache()
    cache.append(*torch.randn(2, 4, 2, 3, 8))
    before, address = cache.read()[0].clone(), cache.read()[0].data_ptr()
    cache.reorder(torch.tensor([0, 1, 2]))
    assert cache.read()[0].data_ptr() == address
    cache.reorder(torch.tensor([2, 0, 2]))
    assert torch.equal(cache.read()[0], before[[2, 0, 2]])


@torch.no_grad()
def test_a_memory_mask_of_one_row_is_that_of_every_sequence_in_every_order() -> None:
    decoder, x, memory = make_decoder(), torch.randn(3, 4, 16), make_memory(torch.float32)
    whole = decoder(x, memory, memory_mask=MASK[1:2])
    for mask in (MASK[1:2], MASK[1, 0]):  # (1, 1, 1, S) and (1, S)
        for rows in ([2, 0, 1], [1, 1, 0, 0], [2]):
            cache = decoder.new_cache(memory, memory_mask=mask)
            decoder(x[:, :1], cache=cache)
            cache.reorder(torch.tensor(rows))
            steps = decoder(x[rows, 1:], cache=cache)
            torch.testing.assert_close(steps, whole[rows, 1:], rtol=0, atol=1e-5)
    assert decoder.new_cache(memory, memory_mask=MASK & False).memory_mask is None  # hides nothing
    with pytest.raises(ValueError, match=r"^mask must have shape"):
        decoder(x, cache=decoder.new_cache(memory, memory_mask=MASK[..., :-1]))


@torch.no_grad()
def test_a_batch_of_another_size_may_follow_a_first_step_that_failed() -> None:
    for encoder in (make_encoder(), prepare(make_encoder())):
        failing: Any = encoder.layers[1]
        hook = failing.register_forward_pre_hook(lambda *_: 1 / 0)
        cache, x = encoder.new_cache(), torch.randn(3, 2, 16)
        with pytest.raises(ZeroDivisionError):
            encoder(x[:2], cache=cache)
        hook.remove()
        assert (cache.length, cache.rows) == (0, 0)
        cache.reorder(torch.tensor([5]))  # an empty cache has no rows, and accepts any
        torch.testing.assert_close(encoder(x, cache=cache), encoder(x), rtol=0, atol=1e-5)


@torch.no_grad()
def test_attention_obeys_masks_and_causality_with_a_cache() -> None:
    attention, x = MultiHeadAttention(16, 4).double(), torch.randn(2, 6, 16, dtype=torch.float64)
    mask = torch.rand(2, 4, 6, 6) < 0.4
    whole = attention(x, x, x, mask=mask, causal=True)
    cache = KeyValueCache()
    for start, end in ((0, 3), (3, 4), (4, 6)):
        new = x[:, start:end]
        part = attention(new, new, new, mask=mask[:, :, start:end, :end], causal=True, cache=cache)
        torch.testing.assert_close(part, whole[:, start:end], rtol=0, atol=1e-12)


def filled_cache() -> KeyValueCache:
    """Make a cache of 3 rows, 4 heads and one position."""
    cache = KeyValueCache()
    cache.append(*torch.ones(2, 3, 4, 1, 4))
    return cache


NEW = torch.ones(3, 4, 1, 4)
SHAPE = r"must have shape \(3, 4, L, 4\), and be torch.float32 on cpu, got "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: filled_cache().append(NEW[1:], NEW[1:]), SHAPE),
        (lambda: filled_cache().append(NEW.double(), NEW.double()), SHAPE),
        (lambda: filled_cache().append(NEW.to("meta"), NEW.to("meta")), SHAPE),
        (lambda: KeyValueCache().append(NEW, NEW[1:]), "keys and values must agree in size N, got"),
        (lambda: KeyValueCache().read(), "the cache is empty: there are no keys and values"),
        (lambda: DecoderCache([filled_cache(), KeyValueCache()]), "memory must hold caches of one"),
    ],
)
def test_a_cache_names_what_is_wrong(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("rows", [[0, 3], [-1, 0]])
@torch.no_grad()
def test_unknown_rows_are_refused(rows: list[int]) -> None:
    of_encoder = make_encoder().new_cache()
    make_encoder()(torch.ones(3, 1, 16), cache=of_encoder)
    for cache in (filled_cache(), of_encoder, make_decoder().new_cache(torch.ones(3, 5, 16))):
        with pytest.raises(IndexError, match=r"^rows must be in 0\.\.2, got (3|-1)$"):
            cache.reorder(torch.tensor(rows))


@torch.no_grad()
def test_a_decoder_takes_either_a_memory_or_a_cache_of_its_own() -> None:
    decoder, memory, x = make_decoder(), torch.randn(3, 5, 16), torch.randn(3, 1, 16)
    cache = decoder.new_cache(memory)
    for options in ({"memory": memory, "cache": cache}, {}, {"cache": cache, "memory_mask": MASK}):
        with pytest.raises(ValueError, match=r"^memory must be given with its memory_mask, or"):
            decoder(x, **options)
    with pytest.raises(ValueError, match=r"^cache must be of this stack with 1 layers, got one of"):
        make_decoder(num_layers=1)(x, cache=cache)


def test_a_cache_takes_neither_keys_nor_values_with_gradients() -> None:
    recorded = NEW.clone().requires_grad_()
    for keys, values in ((recorded, NEW), (NEW, recorded)):
        message = "^a cache stores no gradients; decode inside `with torch.no_grad"
        with pytest.raises(RuntimeError, match=message):
            KeyValueCache().append(keys, values)


@torch.no_grad()
def test_a_cache_cropped_to_nothing_is_as_new() -> None:
    attention, encoder = MultiHeadAttention(16, 4).eval(), make_encoder()
    cache, of_stack = KeyValueCache(), encoder.new_cache()
    for batch in (2, 3):
        x = torch.randn(batch, 4, 16)
        assert torch.equal(attention(x, x, x, cache=cache), attention(x, x, x))
        assert torch.equal(encoder(x, cache=of_stack), encoder(x))
        for each in (cache, of_stack):
            each.crop(2)
            assert (each.length, each.rows) == (2, batch)
            each.crop(0)
            assert (each.length, each.rows) == (0, 0)


@torch.no_grad()
def test_the_layers_of_a_stack_have_one_length() -> None:
    encoder, decoder, x = make_encoder(), make_decoder(), torch.randn(2, 3, 16)
    caches: list[tuple[Any, Any]] = [
        (encoder, encoder.new_cache()),
        (decoder, decoder.new_cache(torch.randn(2, 4, 16))),
    ]
    for stack, cache in caches:
        expected = stack(x[:, :2], cache=cache)[:, 1:]
        assert [each.length for each in (cache, *cache.layers)] == [2, 2, 2]
        for length, left in ((5, 2), (1, 1)):
            cache.crop(length)
            assert [each.length for each in (cache, *cache.layers)] == [left] * 3
        step = stack(x[:, 1:2], cache=cache)
        if stack is decoder:  # causal, so that the first position is as it was
            torch.testing.assert_close(step, expected, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_cache_of_a_layer_in_a_stack_is_changed_with_the_others_only() -> None:
    encoder = make_encoder()
    cache = encoder.new_cache()
    encoder(torch.randn(2, 3, 16), cache=cache)
    layers = cache.layers
    layers[0].crop(1)
    with pytest.raises(ValueError, match=r"^the layers of a cache must have one length"):
        cache.update(layers)
    assert (cache.length, cache.rows) == (3, 2)
    assert [each.length for each in cache.layers] == [3, 3]
    empty = DecoderCache([])  # a decoder may have no attention, as a recurrent one
    assert (empty.length, empty.rows) == (0, 0)


@torch.no_grad()
def test_rows_of_the_target_are_never_taken_for_positions_of_another_source() -> None:
    decoder, memory, x = make_decoder(), torch.randn(2, 7, 16), torch.randn(4, 2, 16)
    for rows in (1, 3, 4):
        with pytest.raises(ValueError, match=r"^query and key must agree in batch size B"):
            decoder(x[:rows], memory)
        cache = decoder.new_cache(memory)
        with pytest.raises(ValueError, match=r"^x must have the cache's batch size 2"):
            decoder(x[:rows], cache=cache)
        assert cache.length == 0


@torch.no_grad()
def test_keys_and_values_are_new_or_in_the_cache_or_both() -> None:
    attention, x = MultiHeadAttention(16, 4), torch.randn(2, 3, 16)
    memory = KeyValueCache()
    memory.append(*attention.project(x, x))
    torch.testing.assert_close(attention(x, cache=memory), attention(x, x, x))
    for key, value, cache in ((x, None, memory), (None, x, memory), (None, None, None)):
        with pytest.raises(ValueError, match=r"^key and value must both be passed, or a cache"):
            attention(x, key, value, cache=cache)
    with pytest.raises(ValueError, match=r"^query and key must agree in batch size B, got 1 and 2"):
        attention(x[:1], cache=memory)
    with pytest.raises(ValueError, match=r"^the cache is empty"):
        attention(x, cache=KeyValueCache())
    assert memory.length == 3


def test_steps_in_inference_mode_may_be_followed_by_steps_outside_of_it() -> None:
    attention, x = MultiHeadAttention(16, 4).eval(), torch.randn(2, 20, 16)
    caches = KeyValueCache(), KeyValueCache()
    for position, token in enumerate(x.split(1, dim=1)):
        mode = torch.inference_mode() if position in (0, 3, 18) else torch.no_grad()
        with mode:
            y = attention(token, token, token, cache=caches[0])
            caches[0].reorder(torch.tensor([1, 0]))
            caches[0].reorder(torch.tensor([1, 0]))
        with torch.no_grad():
            assert torch.equal(y, attention(token, token, token, cache=caches[1]))


STEPPED: dict[str, Callable[[], Any]] = {
    "attention": lambda: MultiHeadAttention(16, 4),
    "encoder layer": lambda: make_encoder().layers[0],
    "decoder layer": lambda: make_decoder().layers[0],
    "encoder": lambda: make_encoder(residual=PreNorm),
    "decoder": lambda: make_decoder(residual=PreNorm),
    "prepared decoder": lambda: prepare(make_decoder()),
}


NUMBER_OF_INPUTS: dict[type, int] = {MultiHeadAttention: 3, DecoderLayer: 2}


def new_cache(model: Any) -> Any:
    if not isinstance(model, Encoder | Decoder):
        return KeyValueCache()
    return model.new_cache(*[torch.ones(2, 5, 16)] * isinstance(model, Decoder))


@pytest.mark.parametrize("make", STEPPED.values(), ids=STEPPED)
@torch.no_grad()
def test_a_step_that_is_interrupted_and_repeated_gives_what_an_undisturbed_step_gives(
    make: Callable[[], Any],
) -> None:
    model = make()
    undisturbed, interrupted = new_cache(model), new_cache(model)
    for operation in range(1000):
        inputs = [torch.randn(2, 1, 16)] * NUMBER_OF_INPUTS.get(type(model), 1)
        expected = model(*inputs, cache=undisturbed)
        try:
            with InterruptedAt(operation):
                model(*inputs, cache=interrupted)
        except KeyboardInterrupt:
            assert torch.equal(model(*inputs, cache=interrupted), expected)
        else:
            break
    assert 5 < operation < 500


@torch.no_grad()
def test_a_reordering_that_is_interrupted_changes_nothing() -> None:
    decoder, rows = make_decoder(), torch.tensor([1, 1, 0])
    x, memory = torch.randn(3, 3, 16), make_memory(torch.float32)
    operation, interruptions = 0, 1
    while operation < interruptions:
        caches = [decoder.new_cache(memory, memory_mask=MASK) for _ in range(2)]
        for cache in caches:
            decoder(x[:, :2], cache=cache)
        try:
            with InterruptedAt(operation):
                caches[0].reorder(rows)
        except KeyboardInterrupt:
            interruptions += 1
        else:
            caches[1].reorder(rows)
        for cache in caches:
            cache.reorder(torch.tensor([2, 0, 1]))
        steps = [decoder(x[:, 2:], cache=cache) for cache in caches]
        assert torch.equal(*steps)
        operation += 1
    assert 5 < operation < 100
