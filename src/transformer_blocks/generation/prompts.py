"""Prompts of unequal length: one batch, padded at the left.

A tensor has one length, prompts have several. A decoding step appends one token to every row of a
batch, so the prompts must end in the same column: the padding is at the *left*. At the right, it
would lie between a prompt and its continuation. A padded row must nevertheless have the logits that
its prompt has alone, up to rounding. Its padding is masked, in every layer and at every step. Its
positions are counted from its own first token: with its padding counted too, a prompt of 3 tokens
in a batch of length 10 would begin at position 7, and the model would compute other logits for it
than for the same prompt alone. No error would be raised.

A positional encoding that is added to the embeddings therefore receives the positions of each row.
Rotary positional encoding, ALiBi and relative position biases need only the distance between two
tokens of a row, which the padding before both of them does not change; with them, a position is the
index of the column.

In each row, the padding takes as much computation as a longer prompt would. Prompts of similar
length should therefore share a batch.
"""

from collections.abc import Sequence
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_blocks._contracts import Ids, checked

Lengths = Sequence[int] | Annotated[Tensor, Ids("N")]
Prompts = Sequence[Sequence[int] | Annotated[Tensor, Ids("L")]] | Annotated[Tensor, Ids("N L")]


@checked
def left_pad(prompts: Prompts) -> tuple[Tensor, list[int]]:
    """Pad prompts at the left to one length, for :meth:`IncrementalDecoder.prefill`.

    Args:
        prompts: The token ids of each prompt; any of them may be empty.

    Returns:
        Token ids, int64, on the CPU, of shape (N, L), where L is the largest length; and the length
        of each prompt. The id of the padding is 0; a model that is given the lengths never reads
        it.

    Raises:
        TypeError: If a prompt is not a sequence of ints.

    Example:
        >>> from transformer_blocks.generation import left_pad
        >>> tokens, lengths = left_pad([[5, 6, 7], [8]])
        >>> tokens
        tensor([[5, 6, 7],
                [0, 0, 8]])
        >>> lengths
        [3, 1]
    """
    return pad(prompts, 0, "left"), [len(prompt) for prompt in prompts]


def pad(prompts: Sequence[Sequence[int] | Tensor] | Tensor, padding_id: int, side: str) -> Tensor:
    """Pad prompts at a side, "left" or "right", to one length; return int64 ids on the CPU."""
    rows = [torch.as_tensor(each, dtype=torch.int64, device="cpu") for each in prompts]
    rows.append(torch.empty(0, dtype=torch.int64, device="cpu"))  # pad_sequence needs at least one
    padded = pad_sequence(rows, batch_first=True, padding_value=padding_id, padding_side=side)
    return padded[:-1]


def without_padding(prompts: Prompts, padding_id: int | None) -> Prompts:
    """Remove the padding after the prompts of a tensor, of shape (N, L); lists need none."""
    if padding_id is None or not isinstance(prompts, Tensor) or prompts.dim() != 2:
        return prompts
    rows = prompts.tolist()
    for row in rows:
        while row and row[-1] == padding_id:
            row.pop()
    return rows


def check_begin(target: Tensor, begin_id: int) -> None:
    """Raise if a target does not begin with the begin token, where this can be read at no cost.

    A GPU would have to finish its work first; compiled code, ``vmap`` and fake tensors have no
    values.

    Raises:
        ValueError: If a row on the CPU begins with another token.
    """
    if not target.is_cpu or torch.compiler.is_compiling():
        return
    try:
        begins = bool((target[:, :1] == begin_id).all())
    except RuntimeError:
        return
    if not begins:
        raise ValueError(f"target must begin with begin_id={begin_id} in every row")


def to_lists(prompts: Sequence[Sequence[int] | Tensor] | Tensor) -> list[list[int]]:
    """Return the token ids of each prompt as a list."""
    return [list(each.tolist() if isinstance(each, Tensor) else each) for each in prompts]


def count_padding(tokens: Tensor, lengths: Sequence[int] | Tensor) -> Tensor:
    """Compute the number of padding tokens at the left of each row.

    Args:
        tokens: Token ids padded at the left, of shape (N, L).
        lengths: Number of tokens of each prompt, N numbers in 0..L.

    Returns:
        Number of padding tokens of each row, int64, on the CPU, of shape (N,).

    Raises:
        ValueError: If there are not N numbers, or one is out of range.
    """
    rows, longest = tokens.shape
    numbers = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    if len(numbers) != rows:
        raise ValueError(
            f"lengths must hold one number for each of the {rows} rows, got {len(numbers)}"
        )
    if len(wrong := numbers[(numbers < 0) | (numbers > longest)]):
        rule = f"lengths must be in 0..{longest}, the length of tokens"
        raise ValueError(f"{rule}, got {wrong.tolist()}")
    return longest - numbers


def left_padding_mask(padding: Tensor, length: int) -> Tensor:
    """Mask the first ``padding[i]`` of the positions of row i; True hides, of shape (N, length)."""
    return torch.arange(length, device="cpu") < padding[:, None]
