# ruff: noqa: E501  (an edit is one string)
"""Planted wrong answers of the course, written before the grader's known mistakes, and right ones.

Each answer is the solution with some text of one unit replaced. A wrong answer has the name of its
cause; a right answer computes the same in another style.
"""

from typing import NamedTuple


class Answer(NamedTuple):
    """An answer to a unit: the solution's file, in which each old text is replaced by a new one."""

    unit: str
    name: str
    edits: tuple[tuple[str, str], ...]


def _answer(unit: str, name: str, *edits: tuple[str, str]) -> Answer:
    return Answer(unit, name, edits)


WRONG = [
    _answer(
        "tokens",
        "pairs are counted once for each different word",
        ("counts[pair] += number", "counts[pair] += 1"),
    ),
    _answer(
        "tokens",
        "of equally frequent pairs, the last is merged",
        (
            "*(vocabulary[each] for each in pair)",
            "*(-vocabulary[each] for each in pair)",
        ),
    ),
    _answer(
        "tokens",
        "merges are applied in order of length",
        (
            "in merges:\n        tokens",
            "in sorted(merges, key=lambda p: -len(p[0] + p[1])):\n        tokens",
        ),
    ),
    _answer(
        "tokens",
        "only the first occurrence is merged",
        (
            "if merged and (merged[-1], token) == pair:",
            'if merged and (merged[-1], token) == pair and "".join(pair) not in merged:',
        ),
    ),
    _answer(
        "tokens",
        "pairs are counted across spaces",
        ("Counter(text.split()).items()", "Counter([text.replace(' ', '')]).items()"),
    ),
    _answer(
        "tokens",
        "the longest token is taken first",
        (
            "    tokens = list(word)\n    for pair in merges:\n        tokens = merge(tokens, pair)\n    return tokens",
            "    known = {a + b for a, b in merges} | set(word)\n"
            "    tokens = []\n"
            "    while word:\n"
            "        end = max(n for n in range(1, len(word) + 1) if word[:n] in known)\n"
            "        tokens.append(word[:end])\n"
            "        word = word[end:]\n"
            "    return tokens",
        ),
    ),
    _answer("embedding", "no factor", (" * math.sqrt(self.weight.shape[1])", "")),
    _answer(
        "embedding",
        "divided by the factor",
        ("] * math.sqrt(self.weight.shape[1])", "] / math.sqrt(self.weight.shape[1])"),
    ),
    _answer(
        "embedding",
        "the factor is d_model",
        ("math.sqrt(self.weight.shape[1])", "self.weight.shape[1]"),
    ),
    _answer(
        "embedding",
        "the factor is that of the vocabulary",
        ("math.sqrt(self.weight.shape[1])", "math.sqrt(self.weight.shape[0])"),
    ),
    _answer(
        "embedding",
        "the logits have the factor too",
        ("embedding.weight.T", "embedding.weight.T * math.sqrt(embedding.weight.shape[1])"),
    ),
    _answer("embedding", "weights of variance 1", (" * d_model**-0.5", "")),
    _answer(
        "positions",
        "each column has a frequency of its own",
        (
            "table[:, 0::2] = angle.sin()",
            "table[:, 0::2] = (position[:, None] / 10000.0 ** (2 * even / d_model)).sin()",
        ),
        (
            "table[:, 1::2] = angle.cos()[:, : d_model // 2]",
            "table[:, 1::2] = (position[:, None] / 10000.0 ** (2 * (even + 1) / d_model)).cos()[:, : d_model // 2]",
        ),
    ),
    _answer(
        "positions",
        "sines and then cosines",
        (
            "    table[:, 0::2] = angle.sin()\n    table[:, 1::2] = angle.cos()[:, : d_model // 2]\n    return table",
            "    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :d_model].float()",
        ),
    ),
    _answer(
        "positions",
        "positions begin at one",
        ("torch.arange(length, dtype", "torch.arange(1, length + 1, dtype"),
    ),
    _answer(
        "positions",
        "sine and cosine are exchanged",
        ("angle.sin()", "angle.cos(  )"),
        ("angle.cos()[", "angle.sin()["),
    ),
    _answer(
        "positions",
        "the offset is ignored",
        ("self.table[offset : offset + x.shape[1]]", "self.table[: x.shape[1]]"),
    ),
    _answer(
        "positions",
        "positions along the batch",
        (
            "self.table[offset : offset + x.shape[1]]",
            "self.table[offset : offset + x.shape[0], None]",
        ),
    ),
    _answer(
        "masks",
        "True allows",
        (
            "return mask.triu(key_length - query_length + 1)",
            "return ~mask.triu(key_length - query_length + 1)",
        ),
    ),
    _answer(
        "masks",
        "the causal mask is aligned to the top left",
        ("triu(key_length - query_length + 1)", "triu(1)"),
    ),
    _answer("masks", "a position cannot attend to itself", ("query_length + 1)", "query_length)")),
    _answer(
        "masks", "a position attends to the next one", ("query_length + 1)", "query_length + 2)")
    ),
    _answer(
        "masks", "the padding mask is inverted", ("tokens == padding_id", "tokens != padding_id")
    ),
    _answer(
        "masks",
        "the padding mask is over the queries",
        ("[:, None, None, :]", "[:, None, :, None]"),
    ),
    _answer("attention", "the scores are not scaled", (" / math.sqrt(query.shape[-1])", "")),
    _answer(
        "attention",
        "the scores are divided by d_k",
        ("math.sqrt(query.shape[-1])", "query.shape[-1]"),
    ),
    _answer(
        "attention", "a softmax over the queries", ("scores.softmax(-1)", "scores.softmax(-2)")
    ),
    _answer(
        "attention",
        "a fully masked row is NaN",
        ("        weights = weights.masked_fill(mask, 0.0)", "        pass"),
    ),
    _answer(
        "attention",
        "the mask is inverted",
        ("scores.masked_fill(mask,", "scores.masked_fill(~mask,"),
        ("weights.masked_fill(mask,", "weights.masked_fill(~mask,"),
    ),
    _answer(
        "attention",
        "the weights are masked after the softmax",
        ("        scores = scores.masked_fill(mask, -math.inf)", "        pass"),
    ),
    _answer(
        "heads",
        "heads are cut without a transpose",
        (
            "x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)",
            "x.view(batch, num_heads, length, d_model // num_heads)",
        ),
    ),
    _answer(
        "heads",
        "heads are joined without a transpose",
        ("heads.transpose(1, 2).flatten(2)", "heads.reshape(heads.shape[0], heads.shape[2], -1)"),
    ),
    _answer(
        "heads",
        "features of a head are interleaved",
        (
            "x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)",
            "x.view(batch, length, d_model // num_heads, num_heads).permute(0, 3, 1, 2)",
        ),
        ("heads.transpose(1, 2).flatten(2)", "heads.permute(0, 2, 3, 1).flatten(2)"),
    ),
    _answer(
        "heads",
        "no output projection",
        ("return self.output_projection(merge_heads(heads))", "return merge_heads(heads)"),
    ),
    _answer(
        "heads",
        "the mask is not passed",
        ("queries, keys, values, mask)", "queries, keys, values)"),
    ),
    _answer(
        "heads",
        "values are made of the keys",
        ("self.value_projection(value)", "self.value_projection(key)"),
    ),
    _answer(
        "feed_forward",
        "no activation function",
        ("self.up_projection(x).relu()", "self.up_projection(x)"),
    ),
    _answer("feed_forward", "a variance with n - 1", ("unbiased=False", "unbiased=True")),
    _answer(
        "feed_forward",
        "eps is added outside the root",
        ("/ (variance + eps).sqrt()", "/ (variance.sqrt() + eps)"),
    ),
    _answer(
        "feed_forward",
        "statistics over the sequence",
        (
            "mean = x.mean(-1, keepdim=True)\n    variance = x.var(-1,",
            "mean = x.mean((-2, -1), keepdim=True)\n    variance = x.var((-2, -1),",
        ),
    ),
    _answer(
        "feed_forward",
        "the sum is not normalised",
        ("self.norm(x + self.dropout(sublayer(x)))", "x + self.norm(self.dropout(sublayer(x)))"),
    ),
    _answer(
        "feed_forward",
        "the residual stream is normalised",
        (
            "return x + self.dropout(sublayer(self.norm(x)))",
            "y = self.norm(x)\n        return y + self.dropout(sublayer(y))",
        ),
    ),
    _answer(
        "layers",
        "no causal mask",
        ("hidden = causal_mask(x.shape[1])", "hidden = causal_mask(x.shape[1]) & False"),
    ),
    _answer(
        "layers",
        "the mask of the memory is not passed",
        ("memory, memory, mask=memory_mask)", "memory, memory)"),
    ),
    _answer(
        "layers",
        "cross-attention to the target itself",
        (
            "self.cross_attention(y, memory, memory, mask=memory_mask)",
            "self.cross_attention(y, y, y)",
        ),
    ),
    _answer(
        "layers",
        "one layer is applied several times",
        (
            "        self.layers = nn.ModuleList(\n            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)\n        )",
            "        self.layers = nn.ModuleList([EncoderLayer(d_model, num_heads, d_ff, dropout)] * num_layers)",
        ),
    ),
    _answer(
        "layers",
        "the layers are in a list that torch does not see",
        (
            "        self.layers = nn.ModuleList(\n            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)\n        )",
            "        self.layers = [EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)]",
        ),
    ),
    _answer(
        "layers",
        "the padding mask of the target is not used",
        ("        if mask is not None:\n            hidden = hidden | mask\n", ""),
    ),
    _answer("loss", "padding counts in the denominator", ("/ real.sum()", "/ len(target)")),
    _answer(
        "loss",
        "padding is not left out",
        ("real = target != padding_id", "real = target == target"),
    ),
    _answer("loss", "the padding id is always 0", ("target != padding_id", "target != 0")),
    _answer(
        "loss",
        "the smoothing of padding remains",
        (
            "return losses[real].sum()",
            "losses = (1 - label_smoothing) * of_target * real + label_smoothing * uniform\n    return losses.sum()",
        ),
    ),
    _answer(
        "loss",
        "the smoothing is spread over the other tokens only",
        (
            "label_smoothing * uniform",
            "label_smoothing * (uniform * logits.shape[1] - of_target) / (logits.shape[1] - 1)",
        ),
    ),
    _answer(
        "loss",
        "a softmax is applied twice",
        ("logits.log_softmax(-1)", "logits.softmax(-1).log_softmax(-1)"),
    ),
    _answer(
        "optimizer",
        "no correction of the bias",
        ("mean / (1 - first**self.count)", "mean"),
        ("(square / (1 - second**self.count)).sqrt()", "square.sqrt()"),
    ),
    _answer(
        "optimizer",
        "eps is added inside the root",
        (
            "(square / (1 - second**self.count)).sqrt()",
            "(square / (1 - second**self.count) + self.eps).sqrt()",
        ),
        ("(spread + self.eps)", "spread"),
    ),
    _answer(
        "optimizer",
        "the betas are exchanged",
        ("first, second = self.betas", "second, first = self.betas"),
    ),
    _answer(
        "optimizer",
        "no square root",
        ("(square / (1 - second**self.count)).sqrt()", "(square / (1 - second**self.count))"),
    ),
    _answer(
        "optimizer",
        "the rate never falls",
        ("min(step**-0.5, step * warmup_steps**-1.5)", "step * warmup_steps**-1.5"),
    ),
    _answer(
        "optimizer",
        "the steps are counted from zero",
        ("        self.count += 1\n", ""),
        (
            "            parameter.sub_(self.lr * corrected / (spread + self.eps))\n",
            "            parameter.sub_(self.lr * corrected / (spread + self.eps))\n        self.count += 1\n",
        ),
        ("first**self.count", "first ** max(self.count, 1)"),
        ("second**self.count", "second ** max(self.count, 1)"),
    ),
    _answer(
        "search",
        "the cache is not reordered",
        ("self.keys, self.values = self.keys[rows], self.values[rows]", "pass"),
    ),
    _answer(
        "search",
        "only the keys are reordered",
        (
            "self.keys, self.values = self.keys[rows], self.values[rows]",
            "self.keys = self.keys[rows]",
        ),
    ),
    _answer(
        "search",
        "the beams of the model are not reordered",
        ("        model.reorder(torch.tensor([row for _, row, _ in kept]))\n", ""),
    ),
    _answer(
        "search",
        "finished beams are extended",
        (
            "kept = [each for each in found if each[2] != end_id][:beam_size]",
            "kept = found[:beam_size]",
        ),
    ),
    _answer(
        "search",
        "the length penalty is reversed",
        (
            "score / ((5 + length) / 6) ** length_penalty",
            "score * ((5 + length) / 6) ** length_penalty",
        ),
    ),
    _answer(
        "search",
        "the search ends with its first finished hypothesis",
        (
            "        kept = [each",
            "        if finished:\n            return max(finished)[1], max(finished)[0]\n        kept = [each",
        ),
    ),
    _answer(
        "bleu",
        "matches are not clipped",
        (
            "sum((found & ngrams(reference, n)).values())",
            "sum(c for g, c in found.items() if g in ngrams(reference, n))",
        ),
    ),
    _answer(
        "bleu",
        "a mean of the sentences' scores",
        (
            "    pairs = [",
            "    if len(hypotheses) > 1:\n        scores = [bleu([h], [r]) for h, r in zip(hypotheses, references)]\n        return sum(scores) / len(scores)\n    pairs = [",
        ),
    ),
    _answer(
        "bleu", "no brevity penalty", ("100 * brevity_penalty(lengths[0], lengths[1]) *", "100 *")
    ),
    _answer(
        "bleu",
        "the lengths are exchanged",
        ("brevity_penalty(lengths[0], lengths[1])", "brevity_penalty(lengths[1], lengths[0])"),
    ),
    _answer(
        "bleu",
        "an arithmetic mean of the precisions",
        ("math.exp(mean)", "sum(matches / total for matches, total in pairs) / 4"),
    ),
    _answer(
        "bleu",
        "long hypotheses are penalised too",
        (
            "    if hypothesis_length >= reference_length:\n        return 1.0\n",
            "    if hypothesis_length > reference_length:\n        return math.exp(1 - hypothesis_length / reference_length)\n",
        ),
    ),
]


RIGHT = [
    _answer(
        "masks",
        "positions are compared",
        (
            "    mask = torch.ones(query_length, key_length, dtype=torch.bool)\n"
            "    return mask.triu(key_length - query_length + 1)",
            "    rows = torch.arange(key_length - query_length, key_length)\n"
            "    return torch.arange(key_length)[None] > rows[:, None]",
        ),
    ),
    _answer(
        "masks",
        "what is not hidden is inverted",
        (
            "    return mask.triu(key_length - query_length + 1)",
            "    return ~mask.tril(key_length - query_length)",
        ),
        ("tokens == padding_id", "~tokens.ne(padding_id)"),
    ),
    _answer(
        "masks",
        "loops",
        (
            "    return mask.triu(key_length - query_length + 1)",
            "    for row in range(query_length):\n"
            "        for column in range(key_length):\n"
            "            mask[row, column] = column - key_length > row - query_length\n"
            "    return mask",
        ),
        (
            "(tokens == padding_id)[:, None, None, :]",
            "tokens.eq(padding_id).unsqueeze(1).unsqueeze(2)",
        ),
    ),
    _answer(
        "attention",
        "einsum",
        ("import math\n", "import math\n\nimport torch"),
        ("query @ key.transpose(-2, -1)", 'torch.einsum("bhld,bhsd->bhls", query, key)'),
        ("weights @ value", 'torch.einsum("bhls,bhsv->bhlv", weights, value)'),
    ),
    _answer(
        "attention",
        "an explicit softmax",
        (
            "    weights = scores.softmax(-1)\n",
            "    top = scores.amax(-1, keepdim=True).clamp(min=-1e30)\n"
            "    powers = (scores - top).exp()\n"
            "    weights = powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)\n",
        ),
    ),
    _answer(
        "attention",
        "one query after the other, scaled before",
        ("import math\n", "import math\n\nimport torch"),
        (
            "query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])",
            "torch.stack([(q[..., None, :] * key / query.shape[-1] ** 0.5).sum(-1) "
            "for q in query.unbind(2)], 2)",
        ),
    ),
    _answer(
        "heads",
        "chunks",
        ("from torch import Tensor, nn\n", "import torch\nfrom torch import Tensor, nn\n"),
        (
            "    batch, length, d_model = x.shape\n"
            "    return x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)",
            "    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)",
        ),
        ("heads.transpose(1, 2).flatten(2)", "torch.cat([one for one in heads.unbind(1)], dim=-1)"),
    ),
    _answer(
        "heads",
        "permute",
        (".transpose(1, 2)\n", ".permute(0, 2, 1, 3)\n"),
        (
            "heads.transpose(1, 2).flatten(2)",
            "heads.permute(0, 2, 1, 3).reshape(heads.shape[0], heads.shape[2], -1)",
        ),
    ),
    _answer(
        "heads",
        "one head after the other",
        ("from torch import Tensor, nn\n", "import torch\nfrom torch import Tensor, nn\n"),
        (
            "        heads, _ = scaled_dot_product_attention(queries, keys, values, mask)\n",
            "        parts = []\n"
            "        for h in range(self.num_heads):\n"
            "            one = slice(h, h + 1)\n"
            "            part = queries[:, one], keys[:, one], values[:, one]\n"
            "            own = mask\n"
            "            if mask is not None and mask.dim() == 4 and mask.shape[1] > 1:\n"
            "                own = mask[:, one]\n"
            "            parts.append(scaled_dot_product_attention(*part, own)[0])\n"
            "        heads = torch.cat(parts, 1)\n",
        ),
    ),
    _answer(
        "loss",
        "logsumexp",
        ("logits.log_softmax(-1)", "logits - logits.logsumexp(-1, keepdim=True)"),
        ("losses[real].sum() / real.sum()", "losses[real].mean()"),
    ),
    _answer(
        "loss",
        "a target distribution",
        ("from torch import Tensor\n", "import torch\nfrom torch import Tensor\n"),
        (
            "(1 - label_smoothing) * of_target + label_smoothing * uniform",
            "-(\n        (torch.full_like(logits, label_smoothing / logits.shape[1])\n"
            "        + (1 - label_smoothing) * torch.eye(logits.shape[1])[target])\n"
            "        * log_probabilities\n    ).sum(1)",
        ),
    ),
    _answer(
        "loss",
        "a loop over the tokens",
        (
            "    return losses[real].sum() / real.sum()",
            "    kept = [one for one, token in zip(losses, target) if int(token) != padding_id]\n"
            "    return sum(kept) / len(kept)",
        ),
    ),
    _answer(
        "tokens",
        "merging by position",
        (
            "    merged: list[str] = []\n    for token in tokens:\n        if merged and (merged[-1], token) == pair:\n            merged[-1] += token\n        else:\n            merged.append(token)\n    return merged",
            "    rest, i = list(tokens), 0\n    while i + 1 < len(rest):\n        if (rest[i], rest[i + 1]) == pair:\n            rest[i : i + 2] = [rest[i] + rest[i + 1]]\n        i += 1\n    return rest",
        ),
    ),
    _answer(
        "tokens",
        "a sorted list of pairs",
        (
            "min(counts, key=lambda pair: (-counts[pair], *(vocabulary[each] for each in pair)))",
            "sorted(counts, key=lambda p: (counts[p], -vocabulary[p[0]], -vocabulary[p[1]]))[-1]",
        ),
    ),
    _answer(
        "tokens",
        "the first known pair is merged until none is left",
        (
            "    tokens = list(word)\n    for pair in merges:\n        tokens = merge(tokens, pair)\n    return tokens",
            "    rank = {pair: i for i, pair in enumerate(merges)}\n    parts = list(word)\n    while any(pair in rank for pair in pairwise(parts)):\n        parts = merge(parts, min(pairwise(parts), key=lambda p: rank.get(p, len(rank))))\n    return parts",
        ),
    ),
    _answer(
        "embedding",
        "functional",
        ("self.weight[tokens]", "nn.functional.embedding(tokens, self.weight)"),
        ("hidden @ embedding.weight.T", "nn.functional.linear(hidden, embedding.weight)"),
    ),
    _answer(
        "embedding",
        "one-hot vectors and einsum",
        (
            "self.weight[tokens]",
            "nn.functional.one_hot(tokens, self.weight.shape[0]).float() @ self.weight",
        ),
        (
            "hidden @ embedding.weight.T",
            'torch.einsum("bld,vd->blv", hidden, embedding.weight)',
        ),
    ),
    _answer(
        "embedding",
        "weights drawn in place",
        (
            "nn.Parameter(torch.randn(vocabulary_size, d_model) * d_model**-0.5)",
            "nn.Parameter(torch.empty(vocabulary_size, d_model))\n        nn.init.normal_(self.weight, std=1 / math.sqrt(d_model))",
        ),
        ("math.sqrt(self.weight.shape[1])", "self.weight.size(-1) ** 0.5"),
    ),
    _answer(
        "positions",
        "exponentials of logarithms in float32",
        (", dtype=torch.float64)\n    even", ").float()\n    even"),
        (", 2, dtype=torch.float64)", ", 2).float()"),
        (
            "position[:, None] / 10000.0 ** (even / d_model)",
            "position[:, None] * torch.exp(even * (-9.210340371976184 / d_model))",
        ),
    ),
    _answer(
        "positions",
        "stacked",
        (
            "    table = torch.zeros(length, d_model)\n    table[:, 0::2] = angle.sin()\n    table[:, 1::2] = angle.cos()[:, : d_model // 2]\n    return table",
            "    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d_model].float()",
        ),
    ),
    _answer(
        "positions",
        "a table made in each call",
        (
            '        self.register_buffer("table", sinusoidal_table(max_length, d_model), persistent=False)\n',
            "        self.d_model = d_model\n",
        ),
        (
            "self.table[offset : offset + x.shape[1]]",
            "sinusoidal_table(offset + x.shape[1], self.d_model)[offset:].unsqueeze(0)",
        ),
    ),
    _answer(
        "feed_forward",
        "torch's own functions",
        (
            "    mean = x.mean(-1, keepdim=True)\n    variance = x.var(-1, keepdim=True, unbiased=False)\n    return (x - mean) / (variance + eps).sqrt() * weight + bias",
            "    return nn.functional.layer_norm(x, weight.shape, weight, bias, eps)",
        ),
        ("self.up_projection(x).relu()", "nn.functional.relu(self.up_projection(x))"),
    ),
    _answer(
        "feed_forward",
        "the mean of squares less the square of the mean",
        (
            "x.var(-1, keepdim=True, unbiased=False)",
            "((x - mean) ** 2).sum(-1, keepdim=True) / x.shape[-1]",
        ),
        ("/ (variance + eps).sqrt()", "* (variance + eps).rsqrt()"),
        ("self.up_projection(x).relu()", "self.up_projection(x).clamp(min=0)"),
    ),
    _answer(
        "feed_forward",
        "a base class",
        (
            "class PreNorm(nn.Module):\n    def __init__(self, d_model: int, dropout: float = 0.1) -> None:\n        super().__init__()\n        self.norm = nn.LayerNorm(d_model)\n        self.dropout = nn.Dropout(dropout)\n",
            "class PreNorm(PostNorm):",
        ),
        (
            "return x + self.dropout(sublayer(self.norm(x)))",
            "update = sublayer(self.norm(x))\n        return self.dropout(update).add(x)",
        ),
    ),
    _answer(
        "layers",
        "named intermediate results",
        (
            "        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=mask))\n        return self.feed_forward_residual(x, self.feed_forward)",
            "        def attend(z):\n            return self.self_attention(query=z, key=z, value=z, mask=mask)\n\n        after = self.self_attention_residual(x, attend)\n        return self.feed_forward_residual(after, lambda z: self.feed_forward(z))",
        ),
    ),
    _answer(
        "layers",
        "masks combined by a function",
        ("from torch import Tensor, nn\n", "import torch\nfrom torch import Tensor, nn\n"),
        ("hidden = hidden | mask", "hidden = torch.logical_or(mask, hidden)"),
    ),
    _answer(
        "layers",
        "layers appended one after the other",
        (
            "        self.layers = nn.ModuleList(\n            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)\n        )\n",
            "        self.layers = nn.ModuleList()\n        for _ in range(num_layers):\n            self.layers.append(EncoderLayer(d_model, num_heads, d_ff, dropout=dropout))\n",
        ),
    ),
    _answer(
        "optimizer",
        "one tensor of powers",
        ("1 - first**self.count", "1 - torch.tensor(first).double().pow(self.count).item()"),
        (
            "mean.mul_(first).add_((1 - first) * parameter.grad)",
            "mean.lerp_(parameter.grad, 1 - first)",
        ),
    ),
    _answer(
        "optimizer",
        "a step size that holds both corrections",
        (
            "            corrected = mean / (1 - first**self.count)\n",
            "            root = (1 - second**self.count) ** 0.5\n",
        ),
        ("(square / (1 - second**self.count)).sqrt()", "square.sqrt()"),
        (
            "parameter.sub_(self.lr * corrected / (spread + self.eps))",
            "rate = self.lr * root / (1 - first**self.count)\n            parameter.data -= rate * mean / (spread + self.eps * root)",
        ),
    ),
    _answer(
        "optimizer",
        "two cases of the rate",
        (
            "    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)",
            "    peak = (d_model * warmup_steps) ** -0.5\n    if step < warmup_steps:\n        return peak * step / warmup_steps\n    return peak * (warmup_steps / step) ** 0.5",
        ),
    ),
    _answer(
        "search",
        "index_select and lists of parts",
        (
            "self.keys, self.values = self.keys[rows], self.values[rows]",
            "self.keys = self.keys.index_select(0, rows)\n            self.values = self.values.index_select(0, rows)",
        ),
    ),
    _answer(
        "search",
        "top-k of the flattened scores",
        (
            "        found = [\n            (score + each, row, token)\n            for row, (score, _) in enumerate(beams)\n            for token, each in enumerate(log_probabilities[row].tolist())\n        ]\n        found.sort(key=lambda each: -each[0])\n",
            "        size = log_probabilities.shape[1]\n        total = log_probabilities + torch.tensor([[score] for score, _ in beams])\n        best, places = total.flatten().topk(min(2 * beam_size, total.numel()))\n        found = [\n            (score, place // size, place % size)\n            for score, place in zip(best.tolist(), places.tolist())\n        ]\n",
        ),
    ),
    _answer(
        "search",
        "a search that stops when nothing better can come",
        (
            "        model.reorder(",
            "        top = rank(kept[0][0], max_length) if kept else -1e9\n        if finished and max(finished)[0] > top:\n            return max(finished)[1], max(finished)[0]\n        model.reorder(",
        ),
    ),
    _answer(
        "bleu",
        "zip of shifted lists",
        (
            "Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))",
            "Counter(zip(*(tokens[i:] for i in range(n))))",
        ),
    ),
    _answer(
        "bleu",
        "a product and a root",
        (
            "sum(math.log(matches / total) for matches, total in pairs) / 4",
            "math.prod(m / t for m, t in pairs) ** 0.25",
        ),
        ("math.exp(mean)", "mean"),
    ),
    _answer(
        "bleu",
        "loops over the n-grams",
        (
            "sum((found & ngrams(reference, n)).values())",
            "sum(min(found[gram], ngrams(reference, n)[gram]) for gram in found)",
        ),
        (
            "    if hypothesis_length >= reference_length:\n        return 1.0\n    return math.exp(1 - reference_length / hypothesis_length) if hypothesis_length else 0.0",
            "    if not hypothesis_length:\n        return 0.0\n    return min(1.0, math.exp(1 - reference_length / hypothesis_length))",
        ),
    ),
]
"""Right answers in another style."""
