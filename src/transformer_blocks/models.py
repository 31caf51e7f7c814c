r"""Models: a language model and a sequence-to-sequence model, assembled from the blocks.

The blocks map vectors to vectors. A model of tokens adds what stands at the two ends of figure 1:
embeddings with positional encodings, and an output layer, which computes from each hidden vector a
logit for every token of the vocabulary. :class:`Seq2Seq` is the whole figure; it translates one
sequence to another. :class:`LanguageModel` is its right half without the cross-attention, a
*decoder-only* model; it continues a sequence.

Both are trained by *teacher forcing*. The model reads a known target at once, and is to predict at
each position the token that follows. Its input and its labels are the same tokens, shifted by one:

.. code-block:: text

    input  <bos>  I   am      hungry
    label  I      am  hungry  <eos>

``forward`` computes the logits, and ``loss`` their cross-entropy with the labels, which
:class:`~transformer_blocks.ModelWithLoss` computes when it is called. ``generate`` calls one of the
searches of :mod:`transformer_blocks.generation`: the model then reads the tokens that it has chosen
itself.

The classes receive their parts as arguments, so that any part can be replaced.
:func:`build_language_model` and :func:`build_seq2seq` need only sizes.

Next: :mod:`transformer_blocks.pretrained`, models with the parts of published families.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import (
    Count,
    DropoutProbability,
    Factory,
    Ids,
    Module,
    Probability,
    Size,
    checked,
    one_of,
)
from transformer_blocks.builders import build_decoder, build_encoder
from transformer_blocks.decoder import Decoder
from transformer_blocks.embedding import SinusoidalPositionalEncoding, TokenEmbedding
from transformer_blocks.encoder import Encoder
from transformer_blocks.fast.dropout import Dropout
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.generation.prompts import Prompts, check_begin, pad, without_padding
from transformer_blocks.loss import NO_ID, cross_entropy
from transformer_blocks.masks import document_mask, padding_mask
from transformer_blocks.residual import PostNorm, Residual

Options = ParamSpec("Options")
Found = TypeVar("Found")
Source = Annotated[Tensor, Ids("B S")]
Target = Annotated[Tensor, Ids("B L")]
Reduction = Annotated[str, one_of("mean", "sum")]


class TiedLinear(nn.Linear):
    """A linear layer without bias that has no weight of its own, but that of an embedding.

    The weight is one parameter however the model is converted or loaded. In a state dict it has
    the names of both layers, as if they shared a parameter.

    Args:
        embedding: Module with a ``weight`` of shape (V, d_model), a part of the same model.
        name: Name of the embedding in the model.
    """

    def __init__(self, embedding: Any, name: str) -> None:
        nn.Module.__init__(self)
        self.out_features, self.in_features = embedding.weight.shape
        self.register_parameter("bias", None)
        self.name = name
        self.embedding = (embedding,)  # a part of the model, and not of this layer

    @property
    def weight(self) -> Any:  # type: ignore[override]
        """The weight of the embedding, of shape (V, d_model)."""
        return self.embedding[0].weight

    def _save_to_state_dict(self, state: Any, prefix: str, keep_vars: bool) -> None:
        state[f"{prefix}weight"] = self.weight if keep_vars else self.weight.detach()

    def _load_from_state_dict(self, *args: Any) -> None:
        layer: Any = nn.Module()
        layer.weight = self.weight
        layer._load_from_state_dict(*args)
        if layer.weight is not self.weight:  # assigned
            self.embedding[0].weight = layer.weight


class TokenModel(nn.Module):
    """What both models have in common.

    Attributes:
        positions: Positional encoding, or None.
        dropout: Dropout of the embeddings (section 5.4).
        output: Layer from hidden vectors, of shape (..., d_model), to logits, (..., V).
    """

    positions: nn.Module | None
    dropout: Dropout
    output: nn.Module

    def start(self, prompts: Prompts) -> tuple[IncrementalDecoder, Tensor]:
        """Read prompts, and return the first two arguments of a search.

        Args:
            prompts: As in :meth:`generate`.

        Returns:
            The step model, and the start token of each prompt, of shape (N,).
        """
        raise NotImplementedError

    def generate(
        self,
        prompts: Prompts,
        search: Callable[Concatenate[IncrementalDecoder, Tensor, Options], Found],
        *args: Options.args,
        **options: Options.kwargs,
    ) -> Found:
        """Generate what follows each prompt; the prompts of a batch do not affect each other.

        Args:
            prompts: Token ids of each prompt, of any lengths, as lists or tensors: the beginning of
                a text, at least one token; or for a :class:`Seq2Seq` the source. In a tensor of
                shape (N, L), shorter prompts have padding at the end, if the model has a
                ``padding_id``.
            search: :func:`~transformer_blocks.greedy_search`, :func:`~transformer_blocks.sample` or
                :func:`~transformer_blocks.beam_search`, or a function that is called as they are.
            args: Further arguments of the search.
            options: Further arguments of the search, such as ``max_length`` and ``end_id``.

        Returns:
            What the search returns: for each prompt a
            :class:`~transformer_blocks.generation.Generation`, or with a beam search a list of
            them.

        Raises:
            TypeError: If ``prompts`` are not lists of ids, or ``search`` cannot be called.
            ValueError: If a prompt of a :class:`LanguageModel` is empty, or padding alone.
        """
        if not callable(search):
            known = "greedy_search, beam_search or sample"
            raise TypeError(f"search must be a function such as {known}, got {search!r}")
        with torch.no_grad():
            return search(*self.start(prompts), *args, **options)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights; of a shared weight, a file needs one name only, as safetensors writes.

        Raises:
            RuntimeError: As in torch.
            ValueError: If the weight has two names and different values.
        """
        if strict and isinstance(self.output, TiedLinear):
            names = f"{self.output.name}.weight", "output.weight"
            found = [state_dict[name] for name in names if name in state_dict]
            if len(found) == 2 and _differ(*found):
                raise ValueError(f"{names[0]} and {names[1]} must be equal, as they are tied")
            state_dict = {**dict.fromkeys(names, found[0]), **state_dict} if found else state_dict
        return super().load_state_dict(state_dict, strict, assign)

    def _embed(self, embedding: nn.Module, tokens: Tensor, offset: int | Tensor = 0) -> Tensor:
        x = embedding(tokens)
        return self.dropout(x if self.positions is None else self.positions(x, offset=offset))


class LanguageModel(TokenModel):
    """A decoder-only Transformer, which predicts the next token of a text.

    Args:
        embedding: Maps token ids, of shape (B, L), to vectors, of shape (B, L, d_model); its
            ``weight`` has the shape (V, d_model).
        decoder: The stack of layers, an :class:`Encoder`, which is called with ``causal=True``: a
            decoder layer without cross-attention is an encoder layer.
        positions: Positional encoding that is added to the embeddings; none if the attention
            encodes positions itself, as :class:`RotaryPositionalEncoding` does.
        dropout: Dropout probability of the embeddings (section 5.4).
        output: Layer from hidden vectors to logits; by default a linear layer that shares the
            weight of the embedding (section 3.4), also after ``to_empty`` and ``load_state_dict``.
        padding_id: Id of the padding after texts, which does not contribute to the loss; None if
            there is none.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_language_model, greedy_search
        >>> model = build_language_model(50, num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> def generate(prompts):
        ...     return model.generate(prompts, greedy_search, max_length=4, end_id=None)
        >>> together = generate([[5, 6, 7], [8]])
        >>> together[1].tokens == generate([[8]])[0].tokens  # the same continuation as alone
        True
    """

    @checked
    def __init__(
        self,
        embedding: Module[nn.Module],
        decoder: Module[Encoder],
        *,
        positions: nn.Module | None = None,
        dropout: DropoutProbability = 0.0,
        output: nn.Module | None = None,
        padding_id: Count | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.positions, self.dropout = embedding, positions, Dropout(dropout)
        self.decoder, self.padding_id = decoder, padding_id
        self.output = TiedLinear(embedding, "embedding") if output is None else output

    def embed(self, tokens: Tensor, offset: int | Tensor = 0) -> Tensor:
        """Embed tokens, of shape (B, L), the first of them at position ``offset``.

        If the rows have different positions, ``offset`` has the shape (B,).
        """
        return self._embed(self.embedding, tokens, offset)

    def hidden(
        self, tokens: Tensor, *, mask: Tensor | None = None, documents: Tensor | None = None
    ) -> Tensor:
        """Compute the inputs of the output layer, of shape (B, L, d_model)."""
        if documents is None:
            return self.decoder(self.embed(tokens), mask=mask, causal=True)
        index = torch.arange(tokens.shape[1], device=tokens.device)
        first = F.pad(documents.diff(dim=1) != 0, (1, 0)) * index  # 0, or where a document begins
        positions = index - first.cummax(dim=1).values  # (B, L), from 0 in each document
        x = self.embed(tokens.reshape(-1, 1), positions.flatten().cpu()).view(*tokens.shape, -1)
        of_documents = document_mask(documents)
        mask = of_documents if mask is None else of_documents | mask
        return self.decoder(x, mask=mask, causal=True)

    @checked
    def forward(
        self, tokens: Target, *, mask: Tensor | None = None, documents: Target | None = None
    ) -> Tensor:
        """Compute the logits of the token that follows each token.

        Padding after a text needs no mask: the causal mask hides it from the text.

        Args:
            tokens: Token ids, of shape (B, L).
            mask: Boolean mask besides the causal one; **True hides** a key from a query. Shape
                (L, L) or (B|1, H|1, L|1, L).
            documents: Id of the document that each token belongs to, of shape (B, L), if several
                share one sequence; the tokens of a document are adjacent. Each document
                then has the logits that it has alone: no token attends to another document, and
                positions are counted from the document's first token.

        Returns:
            Logits, of shape (B, L, V).
        """
        return self.output(self.hidden(tokens, mask=mask, documents=documents))

    @checked
    def loss(
        self,
        tokens: Target,
        *,
        labels: Target | None = None,
        mask: Tensor | None = None,
        documents: Target | None = None,
        label_smoothing: Probability = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each token after those before it.

        For ``torch.compile`` or ``DistributedDataParallel``, call a
        :class:`~transformer_blocks.ModelWithLoss` instead: this method of a wrapped model is
        neither compiled nor does it average gradients.

        Args:
            tokens: Token ids, int64, of shape (B, L).
            labels: What is to be predicted at each token, int64, of shape (B, L); -100 where
                nothing is. By default the next token: the last one is then a label only, and the
                first of a document is no label.
            mask: As in :meth:`forward`, for the tokens that are read: all, or without ``labels``
                the first L - 1.
            documents: As in :meth:`forward`, of shape (B, L).
            label_smoothing: As in :func:`transformer_blocks.loss.cross_entropy`.
            reduction: ``"mean"`` over the labels, or their ``"sum"``.

        Returns:
            The loss, a scalar, to which padding does not contribute; zero if there is nothing else.

        Raises:
            IndexError: If an id is not in the vocabulary, on a CPU.
            ValueError: If L is 1, so that there is nothing to predict.
        """
        ignored = NO_ID if self.padding_id is None else self.padding_id
        if labels is not None:
            labels = labels.masked_fill(labels == -100, ignored)  # as in torch
        else:
            tokens, labels = tokens[:, :-1], tokens[:, 1:]
            if documents is not None:
                labels = labels.masked_fill(documents.diff(dim=1) != 0, ignored)
                documents = documents[:, :-1]
        logits = self(tokens, mask=mask, documents=documents)
        return _loss(logits, labels, ignored, label_smoothing, reduction)

    @checked
    def start(self, prompts: Prompts) -> tuple[IncrementalDecoder, Tensor]:  # noqa: D102
        rows = without_padding(prompts, self.padding_id)
        lengths = [len(row) for row in rows]
        if not all(lengths):
            raise ValueError("prompts must have at least one token each, got an empty one")
        tokens = pad(rows, 0, "left").to(next(self.parameters()).device)
        cache = self.decoder.new_cache()
        model = IncrementalDecoder(self.decoder, cache, embed=self.embed, output=self.output)
        model.prefill(tokens[:, :-1], lengths=[length - 1 for length in lengths])
        return model, tokens[:, -1:].flatten()  # which the first step of the search reads


class Seq2Seq(TokenModel):
    """The Transformer of figure 1, which predicts the next token of a target from its source.

    Args:
        source_embedding: Maps source token ids, of shape (B, S), to vectors, (B, S, d_model).
        target_embedding: Maps target token ids to vectors; its ``weight`` has the shape
            (V, d_model). It may be the same module, if both sides have one vocabulary.
        encoder: The stack that maps the source to the memory.
        decoder: The stack that attends to the target so far and to the memory.
        positions: Positional encoding that is added to the embeddings; none if the attention
            encodes positions itself.
        dropout: Dropout probability of the embeddings (section 5.4).
        output: Layer from hidden vectors to logits; by default a linear layer that shares the
            weight of the target embedding (section 3.4), also after ``to_empty`` and
            ``load_state_dict``.
        padding_id: Id of the padding after sources and targets.
        begin_id: Id of the token before each target.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If ``dropout`` is out of range, or ``begin_id`` is not in the vocabulary of the
            target embedding.

    Example:
        >>> import torch
        >>> from transformer_blocks import beam_search, build_seq2seq
        >>> model = build_seq2seq(30, 40, num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> def translate(sources):
        ...     return model.generate(sources, beam_search, beam_size=3, max_length=5, end_id=2)
        >>> together = translate([[5, 6, 7], [8, 9]])
        >>> together[1][0].tokens == translate([[8, 9]])[0][0].tokens  # the same as alone
        True
    """

    @checked
    def __init__(
        self,
        source_embedding: Module[nn.Module],
        target_embedding: Module[nn.Module],
        encoder: Module[Encoder],
        decoder: Module[Decoder],
        *,
        positions: nn.Module | None = None,
        dropout: DropoutProbability = 0.0,
        output: nn.Module | None = None,
        padding_id: Count = 0,
        begin_id: Count = 1,
    ) -> None:
        super().__init__()
        self.source_embedding, self.target_embedding = source_embedding, target_embedding
        self.positions, self.dropout = positions, Dropout(dropout)
        self.encoder, self.decoder = encoder, decoder
        self.output = TiedLinear(target_embedding, "target_embedding") if output is None else output
        self.padding_id, self.begin_id = padding_id, begin_id
        weight = getattr(target_embedding, "weight", None)
        if isinstance(weight, Tensor) and begin_id >= len(weight):
            raise ValueError(
                f"begin_id must be below the vocabulary size {len(weight)}, got begin_id={begin_id}"
            )

    def embed(self, target: Tensor, offset: int = 0) -> Tensor:
        """Embed target tokens, of shape (B, L), the first of them at position ``offset``."""
        return self._embed(self.target_embedding, target, offset)

    def embed_source(self, source: Tensor) -> Tensor:
        """Embed source tokens, of shape (B, S)."""
        return self._embed(self.source_embedding, source)

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the source, of shape (B, S), padded at the end.

        Returns:
            The memory, of shape (B, S, d_model), and its padding mask, of shape (B, 1, 1, S).
        """
        mask = padding_mask(source, self.padding_id)
        return self.encoder(self.embed_source(source), mask=mask), mask

    def hidden(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute the inputs of the output layer, of shape (B, L, d_model)."""
        memory, mask = self.encode(source)
        return self.decoder(self.embed(target), memory, memory_mask=mask)

    @checked
    def forward(self, source: Source, target: Target) -> Tensor:
        """Compute the logits of the token that follows each target token.

        Padding after the target needs no mask: the causal mask hides it from the target.

        Args:
            source: Source token ids, padded at the end, of shape (B, S).
            target: Target token ids, begin token first, of shape (B, L).

        Returns:
            Logits, of shape (B, L, V).
        """
        return self.output(self.hidden(source, target))

    @checked
    def loss(
        self,
        source: Source,
        target: Target,
        *,
        label_smoothing: Probability = 0.0,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """Compute the cross-entropy of each target token after those before it.

        For ``torch.compile`` or ``DistributedDataParallel``, call a
        :class:`~transformer_blocks.ModelWithLoss` instead, as for :meth:`LanguageModel.loss`.

        Args:
            source: Source token ids, padded at the end, of shape (B, S).
            target: Target token ids from the begin token to the end token, int64, padded at the
                end, of shape (B, L).
            label_smoothing: As in :func:`transformer_blocks.loss.cross_entropy`; the paper uses
                0.1.
            reduction: ``"mean"`` over the target tokens, or their ``"sum"``.

        Returns:
            The loss, a scalar, to which padding does not contribute; zero if there is nothing else.

        Raises:
            IndexError: If an id is not in the vocabulary, on a CPU.
            ValueError: If a target does not begin with the begin token (this is checked on a CPU,
                but not in compiled code), or has no other token.
        """
        check_begin(target, self.begin_id)
        logits = self(source, target[:, :-1])
        return _loss(logits, target[:, 1:], self.padding_id, label_smoothing, reduction)

    @checked
    def start(self, prompts: Prompts) -> tuple[IncrementalDecoder, Tensor]:  # noqa: D102
        source = pad(prompts, self.padding_id, "right").to(next(self.parameters()).device)
        source = source if source.shape[1] else F.pad(source, (0, 1), value=self.padding_id)
        return self.begin(source), source.new_full((len(source),), self.begin_id)

    @torch.no_grad()
    def begin(self, source: Tensor) -> IncrementalDecoder:
        """Encode sources, of shape (N, S), padded at the end; return what decodes their targets."""
        memory, mask = self.encode(source)
        cache = self.decoder.new_cache(memory, memory_mask=mask)
        return IncrementalDecoder(self.decoder, cache, embed=self.embed, output=self.output)


@checked
def build_language_model(
    vocabulary_size: Size,
    *,
    num_layers: Size = 6,
    d_model: Size = 512,
    num_heads: Size = 8,
    d_ff: Size = 2048,
    dropout: DropoutProbability = 0.1,
    residual: Factory[Callable[..., Residual]] = PostNorm,
    padding_id: Count | None = None,
) -> LanguageModel:
    """Build a decoder-only model with the paper's parts.

    The embeddings have half the initial standard deviation of :class:`TokenEmbedding`, so that the
    loss begins near ln V.

    Args:
        vocabulary_size: V, the number of token ids.
        num_layers: Number of layers.
        d_model: Size of the hidden vectors between the layers.
        num_heads: Number of attention heads of each layer.
        d_ff: Inner size of the feed-forward networks.
        dropout: Dropout probability of the embeddings and of the output of each sublayer.
            Small models learn faster without it.
        residual: As in :func:`build_encoder`.
        padding_id: As in :class:`LanguageModel`.

    Returns:
        The model. For other parts, build the class from them.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size or probability is out of range, or ``num_heads`` does not divide
            ``d_model``.

    Example:
        >>> from transformer_blocks import build_language_model
        >>> model = build_language_model(100, num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> model.output.weight is model.embedding.weight  # the two ends share their weights
        True
    """
    sizes = dict[str, Any](num_layers=num_layers, d_model=d_model, num_heads=num_heads, d_ff=d_ff)
    return LanguageModel(
        _tied_embedding(vocabulary_size, d_model),
        build_encoder(**sizes, dropout=dropout, residual=residual),
        positions=SinusoidalPositionalEncoding(d_model),
        dropout=dropout,
        padding_id=padding_id,
    )


@checked
def build_seq2seq(
    source_size: Size,
    target_size: Size,
    *,
    num_layers: Size = 6,
    d_model: Size = 512,
    num_heads: Size = 8,
    d_ff: Size = 2048,
    dropout: DropoutProbability = 0.1,
    residual: Factory[Callable[..., Residual]] = PostNorm,
    padding_id: Count = 0,
    begin_id: Count = 1,
) -> Seq2Seq:
    """Build the model of figure 1 with the paper's parts, and its base sizes as defaults.

    The embeddings of the target have half the initial standard deviation of
    :class:`TokenEmbedding`, so that the loss begins near ln V.

    Args:
        source_size: Number of token ids of the source.
        target_size: V, the number of token ids of the target.
        num_layers: Number of layers of the encoder, and of the decoder.
        d_model: Size of the hidden vectors between the layers.
        num_heads: Number of attention heads of each layer.
        d_ff: Inner size of the feed-forward networks.
        dropout: Dropout probability of the embeddings and of the output of each sublayer.
            Small models learn faster without it.
        residual: As in :func:`build_encoder`.
        padding_id: As in :class:`Seq2Seq`.
        begin_id: As in :class:`Seq2Seq`.

    Returns:
        The model. For other parts, build the class from them.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size or probability is out of range, ``num_heads`` does not divide
            ``d_model``, or ``begin_id`` is not below ``target_size``.

    Example:
        >>> from transformer_blocks import build_seq2seq
        >>> model = build_seq2seq(30, 40, num_layers=2, d_model=16, num_heads=4, d_ff=32)
        >>> model.output.weight is model.target_embedding.weight
        True
    """
    sizes = dict[str, Any](num_layers=num_layers, d_model=d_model, num_heads=num_heads, d_ff=d_ff)
    return Seq2Seq(
        TokenEmbedding(source_size, d_model),
        _tied_embedding(target_size, d_model),
        build_encoder(**sizes, dropout=dropout, residual=residual),
        build_decoder(**sizes, dropout=dropout, residual=residual),
        positions=SinusoidalPositionalEncoding(d_model),
        dropout=dropout,
        padding_id=padding_id,
        begin_id=begin_id,
    )


def _tied_embedding(vocabulary_size: int, d_model: int) -> TokenEmbedding:
    """Make an embedding with initial weights that suit an output layer, too."""
    embedding = TokenEmbedding(vocabulary_size, d_model)
    with torch.no_grad():
        embedding.weight.mul_(0.5)
    return embedding


def _differ(a: Tensor, b: Tensor) -> bool:
    """Return whether two plain tensors of one shape have different values."""
    is_plain = {type(a), type(b)} <= {Tensor, nn.Parameter} and not (a.is_meta or b.is_meta)
    if not is_plain or a.shape != b.shape:
        return False
    return not torch.allclose(a.to(b), b, rtol=0.0, atol=0.0, equal_nan=True)


def _loss(logits: Tensor, labels: Tensor, ignored: int, smoothing: float, reduction: str) -> Tensor:
    """Compute the cross-entropy of labels, of shape (B, L), except for an id."""
    if not labels.numel():
        raise ValueError("a loss needs at least two tokens: the first is not predicted")
    return cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        label_smoothing=smoothing,
        ignore_index=ignored,
        reduction=reduction,
    )
