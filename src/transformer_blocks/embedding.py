r"""Embeddings: token ids become vectors, and positional encodings are added to them.

Each token id selects a row of a learned embedding matrix (section 3.4 of "Attention Is All You
Need", Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; *the paper* from here on). Attention
is permutation-equivariant: without further information, a sequence would be a bag of words. A
positional encoding, one vector per position, is therefore added (section 3.5). The paper's
encodings are sines and cosines of geometrically increasing wavelengths, from :math:`2\pi` to almost
:math:`10000 \cdot 2\pi` positions:

.. math::

   PE_{(pos, 2i)} &= \sin(pos / 10000^{2i/d_{model}}) \\
   PE_{(pos, 2i+1)} &= \cos(pos / 10000^{2i/d_{model}})

A shift by k positions rotates each (sine, cosine) pair by a fixed angle, whatever the position:
:math:`PE_{pos+k}` is a linear function of :math:`PE_{pos}`. The authors chose the sinusoids because
they expected that attention could then easily learn to attend by relative position, for example to
the token three positions earlier. They preferred them to learned positions, with nearly identical
results, because sinusoids might extrapolate to sequences longer than those of the training; Press
et al. (2021, https://arxiv.org/abs/2108.12409) measured that they hardly do.

Next: :mod:`transformer_blocks.masks`, which positions must not be attended to.
"""

import math
from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contexts import is_autocast
from transformer_blocks._contracts import Count, Ids, Size, Vectors, checked

TokenIds = Annotated[Tensor, Ids("B L")]
Offset = Count | Annotated[Tensor, Ids("B")]


class TokenEmbedding(nn.Module):
    r"""Embed token ids as learned vectors, scaled by :math:`\sqrt{d_{model}}` (section 3.4).

    The paper multiplies by :math:`\sqrt{d_{model}}`; it gives neither a reason for it nor the
    initialisation. Here, the matrix is initialised with a standard deviation of
    :math:`1/\sqrt{d_{model}}`, so that initial embeddings have a standard deviation of 1 after the
    scaling; the root mean square of the positional encodings that are added to them is
    :math:`\sqrt{1/2}`. An output projection can share the matrix (section 3.4, *tied embeddings*),
    ``projection.weight = embedding.weight``, and uses it without the factor. Its initial logits
    then have a standard deviation of 1 for inputs of unit variance.

    The hidden vector of a token resembles its embedding before training, and a tied output then
    expects the token itself once more: the loss begins above ln V, that of a guess. Where ln V is
    6.9 (V 1,000, ``d_model`` 512, 2 layers; means of 3 seeds), a language model begins at 13.5 with
    :class:`PreNorm` and 9.9 with :class:`PostNorm`, an encoder-decoder model at 12.1 and 7.8. Half
    the standard deviation begins at 7.1; :func:`build_language_model` and :func:`build_seq2seq` use
    it for the tied embedding.

    The loss on new texts after 300 updates was lower with half of it for language models (2.10 and
    2.16 with pre-norm, 2.11 and 2.15 with post-norm; ``d_model`` 64, 2 layers, bytes of English
    text; higher with a quarter, 2.24 and 2.19, or with logits that are divided by
    :math:`\sqrt{d_{model}}`, 2.49), and hardly differed for translators (1.44 and 1.47 with
    pre-norm, 1.63 and 1.63 with post-norm, 1.83 with a quarter; ``d_model`` 64, 2 + 2 layers, means
    of 5 seeds).

    Args:
        vocabulary_size: V, the number of token ids.
        d_model: Size of an embedding vector.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import TokenEmbedding
        >>> embedding = TokenEmbedding(vocabulary_size=100, d_model=16)
        >>> projection = nn.Linear(16, 100, bias=False)
        >>> projection.weight = embedding.weight  # tied input and output embeddings
        >>> tokens = torch.tensor([[3, 14, 15]])
        >>> torch.equal(projection(embedding(tokens)).argmax(-1), tokens)
        True
    """

    @checked
    def __init__(self, vocabulary_size: Size, d_model: Size) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary_size, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    @checked
    def forward(self, tokens: TokenIds) -> Tensor:
        """Embed every token.

        Args:
            tokens: Token ids, int32 or int64, of shape (B, L).

        Returns:
            Scaled embeddings, of shape (B, L, d_model).

        Raises:
            TypeError: If ``tokens`` is no tensor of integers.
            ValueError: If its shape is not (B, L).
            IndexError: If an id is not in the vocabulary, on a CPU. (On CUDA it triggers a
                device-side assertion, after which the process can no longer use the GPU.)
        """
        vocabulary_size, d_model = self.weight.shape
        try:
            return F.embedding(tokens, self.weight) * math.sqrt(d_model)
        except IndexError:
            sequence, position = ((tokens < 0) | (tokens >= vocabulary_size)).nonzero()[0].tolist()
            raise IndexError(
                f"token ids must be in 0..{vocabulary_size - 1} (vocabulary_size="
                f"{vocabulary_size}), got id {tokens[sequence, position].item()} "
                f"at position {position} of sequence {sequence}"
            ) from None

    def extra_repr(self) -> str:
        """Show the sizes of the weight when the module is printed."""
        vocabulary_size, d_model = self.weight.shape
        return f"vocabulary_size={vocabulary_size}, d_model={d_model}"


@checked
def sinusoidal_table(length: Size, d_model: Size) -> Tensor:
    """Compute the sinusoidal positional encodings of the paper, in float64.

    Args:
        length: Number of positions, starting at 0.
        d_model: Size of an encoding; if it is odd, the last sine has no cosine.

    Returns:
        Encodings between -1 and 1, on the CPU, of shape (length, d_model); sines are in the even
        columns, cosines in the odd ones.

    Raises:
        ValueError: If a size is not positive.
    """
    position = torch.arange(length, dtype=torch.float64, device="cpu")
    even = torch.arange(0, d_model, 2, dtype=torch.float64, device="cpu")  # 2i
    angle = position[:, None] / 10000.0 ** (even / d_model)  # (length, ceil(d_model / 2))
    table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)
    return table[:, :d_model]


class SinusoidalPositionalEncoding(nn.Module):
    """Add the paper's sinusoidal positional encoding to each vector; it has no parameters.

    The encodings are stored in float32 or float64, whatever the dtype of the model, and rounded
    only once, when they are added to ``x``. They are never on the meta device: they are not in the
    state dict, so that loading a state dict could not restore them.

    Args:
        d_model: Size of the vectors; may be odd.
        max_length: Number of positions for which encodings are computed.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import SinusoidalPositionalEncoding
        >>> positions = SinusoidalPositionalEncoding(d_model=16)
        >>> x = torch.zeros(1, 5, 16)
        >>> whole = positions(x)
        >>> last = positions(x[:, 4:], offset=4)  # the newest token alone, as in decoding
        >>> torch.equal(whole[:, 4:], last)
        True
    """

    table: Tensor

    @checked
    def __init__(self, d_model: Size, *, max_length: Size = 5000) -> None:
        super().__init__()
        self.d_model, self.max_length = d_model, max_length
        table = sinusoidal_table(max_length, d_model).float()
        device = torch.get_default_device()
        table = table if device.type == "meta" else table.to(device)
        self.register_buffer("table", table, persistent=False)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "SinusoidalPositionalEncoding":
        """Convert the module, then recompute the table, which a conversion may round or discard."""
        previous_device = self.table.device
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = previous_device if self.table.is_meta else self.table.device
        dtype = torch.promote_types(self.table.dtype, torch.float32)
        table = sinusoidal_table(self.max_length, self.d_model)
        self.table = table.to(dtype).to(device)  # some devices have no float64
        return self

    @checked
    def forward(
        self, x: Annotated[Tensor, Vectors("B L d_model")], *, offset: Offset = 0
    ) -> Tensor:
        """Add the encoding of its position to each vector.

        Args:
            x: Input vectors, of shape (B, L, d_model).
            offset: Position of the first vector; in a decoding step, the number of earlier tokens.
                Or, if the sequences have different positions, a tensor on the CPU with one number
                for each sequence, of shape (B,). It is negative where a sequence begins with
                padding: a position before 0 gets the encoding of position 0.

        Returns:
            Sum of ``x`` and the encodings, of shape (B, L, d_model).

        Raises:
            TypeError: If ``x`` is not a floating-point tensor, or ``offset`` is neither an integer
                nor an integer tensor.
            ValueError: If a shape does not fit, a position is not below ``max_length``, or the
                integer ``offset`` is negative.
        """
        return x + _select(self.table, x, offset).to(x.device, x.dtype)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"d_model={self.d_model}, max_length={self.max_length}"


class LearnedPositionalEncoding(nn.Module):
    """Add a learned positional encoding to each vector, as BERT and GPT-2 do.

    The paper compares it with the sinusoidal encoding and finds nearly identical results (table 3,
    row E).

    Args:
        d_model: Size of the vectors.
        max_length: Number of positions that have an encoding; a later position raises an error.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import LearnedPositionalEncoding
        >>> positions = LearnedPositionalEncoding(d_model=16, max_length=8)
        >>> positions(torch.zeros(1, 9, 16))
        Traceback (most recent call last):
        ValueError: positions must stay below max_length, got offset=0 + length=9 > max_length=8
    """

    @checked
    def __init__(self, d_model: Size, *, max_length: Size) -> None:
        super().__init__()
        self.d_model = d_model
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        nn.init.normal_(self.weight, std=0.02)

    @checked
    def forward(
        self, x: Annotated[Tensor, Vectors("B L d_model")], *, offset: Offset = 0
    ) -> Tensor:
        """Add the encoding of its position to each vector.

        Args:
            x: Input vectors, of shape (B, L, d_model).
            offset: Position of the first vector; in a decoding step, the number of earlier tokens.
                Or, if the sequences have different positions, a tensor on the CPU with one number
                for each sequence, of shape (B,). It is negative where a sequence begins with
                padding: a position before 0 gets the encoding of position 0.

        Returns:
            Sum of ``x`` and the encodings, of shape (B, L, d_model).

        Raises:
            TypeError: If ``x`` has another dtype than the weight, or ``offset`` is neither an
                integer nor an integer tensor.
            ValueError: If a shape does not fit, a position is not below ``max_length``, or the
                integer ``offset`` is negative.
        """
        if x.dtype != self.weight.dtype and not is_autocast(x):  # torch would convert the sum
            rule = f"must have the dtype of the weights, {self.weight.dtype}"
            raise TypeError(f"x {rule}, got dtype={x.dtype}")
        return x + _select(self.weight, x, offset)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        max_length, d_model = self.weight.shape
        return f"d_model={d_model}, max_length={max_length}"


def _select(table: Tensor, x: Tensor, offset: int | Tensor) -> Tensor:
    """Select the rows of a table of positional encodings that belong to the vectors ``x``.

    Returns:
        Encodings, of shape (L, d_model), or (B, L, d_model) if each sequence has its own offset.
    """
    length, max_length = x.shape[1], table.shape[0]
    if isinstance(offset, Tensor):
        positions = (offset[:, None] + torch.arange(length, device="cpu")).clamp_min(0)  # (B, L)
        try:
            rows = torch.arange(max_length, device="cpu")[positions]  # refuses an unknown position
            return table[rows.to(table.device)]
        except IndexError:
            offset = int(offset.max())
    if offset + length > max_length:
        raise ValueError(
            f"positions must stay below max_length, got offset={offset} + length={length} "
            f"> max_length={max_length}"
        )
    return table[offset : offset + length]
