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


def answer(unit: str, name: str, *edits: tuple[str, str]) -> Answer:
    return Answer(unit, name, edits)


WRONG = [
    answer(
        "tokens",
        "pairs are counted once for each different word",
        ("counts[pair] += number", "counts[pair] += 1"),
    ),
    answer(
        "tokens",
        "of equally frequent pairs, the last is merged",
        (
            "*(vocabulary[each] for each in pair)",
            "*(-vocabulary[each] for each in pair)",
        ),
    ),
    answer(
        "tokens",
        "merges are applied in order of length",
        (
            "in merges:\n        tokens",
            "in sorted(merges, key=lambda p: -len(p[0] + p[1])):\n        tokens",
        ),
    ),
    answer(
        "tokens",
        "only the first occurrence is merged",
        (
            "if merged and (merged[-1], token) == pair:",
            'if merged and (merged[-1], token) == pair and "".join(pair) not in merged:',
        ),
    ),
    answer(
        "tokens",
        "pairs are counted across spaces",
        ("Counter(text.split()).items()", "Counter([text.replace(' ', '')]).items()"),
    ),
    answer(
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
    answer("embedding", "no factor", (" * math.sqrt(self.weight.shape[1])", "")),
    answer(
        "embedding",
        "divided by the factor",
        ("] * math.sqrt(self.weight.shape[1])", "] / math.sqrt(self.weight.shape[1])"),
    ),
    answer(
        "embedding",
        "the factor is d_model",
        ("math.sqrt(self.weight.shape[1])", "self.weight.shape[1]"),
    ),
    answer(
        "embedding",
        "the factor is that of the vocabulary",
        ("math.sqrt(self.weight.shape[1])", "math.sqrt(self.weight.shape[0])"),
    ),
    answer(
        "embedding",
        "the logits have the factor too",
        ("embedding.weight.T", "embedding.weight.T * math.sqrt(embedding.weight.shape[1])"),
    ),
    answer("embedding", "weights of variance 1", (" * d_model**-0.5", "")),
    answer(
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
    answer(
        "positions",
        "sines and then cosines",
        (
            "    table[:, 0::2] = angle.sin()\n    table[:, 1::2] = angle.cos()[:, : d_model // 2]\n    return table",
            "    return torch.cat([angle.sin(), angle.cos()], dim=1)[:, :d_model].float()",
        ),
    ),
    answer(
        "positions",
        "positions begin at one",
        ("torch.arange(length, dtype", "torch.arange(1, length + 1, dtype"),
    ),
    answer(
        "positions",
        "sine and cosine are exchanged",
        ("angle.sin()", "angle.cos(  )"),
        ("angle.cos()[", "angle.sin()["),
    ),
    answer(
        "positions",
        "the offset is ignored",
        ("self.table[offset : offset + x.shape[1]]", "self.table[: x.shape[1]]"),
    ),
    answer(
        "positions",
        "positions along the batch",
        (
            "self.table[offset : offset + x.shape[1]]",
            "self.table[offset : offset + x.shape[0], None]",
        ),
    ),
    answer(
        "masks",
        "True allows",
        (
            "return mask.triu(key_length - query_length + 1)",
            "return ~mask.triu(key_length - query_length + 1)",
        ),
    ),
    answer(
        "masks",
        "the causal mask is aligned to the top left",
        ("triu(key_length - query_length + 1)", "triu(1)"),
    ),
    answer("masks", "a position cannot attend to itself", ("query_length + 1)", "query_length)")),
    answer(
        "masks", "a position attends to the next one", ("query_length + 1)", "query_length + 2)")
    ),
    answer(
        "masks", "the padding mask is inverted", ("tokens == padding_id", "tokens != padding_id")
    ),
    answer(
        "masks",
        "the padding mask is over the queries",
        ("[:, None, None, :]", "[:, None, :, None]"),
    ),
    answer("attention", "the scores are not scaled", (" / math.sqrt(query.shape[-1])", "")),
    answer(
        "attention",
        "the scores are divided by d_k",
        ("math.sqrt(query.shape[-1])", "query.shape[-1]"),
    ),
    answer("attention", "a softmax over the queries", ("scores.softmax(-1)", "scores.softmax(-2)")),
    answer(
        "attention",
        "a fully masked row is NaN",
        ("        weights = weights.masked_fill(mask, 0.0)", "        pass"),
    ),
    answer(
        "attention",
        "the mask is inverted",
        ("scores.masked_fill(mask,", "scores.masked_fill(~mask,"),
        ("weights.masked_fill(mask,", "weights.masked_fill(~mask,"),
    ),
    answer(
        "attention",
        "the weights are masked after the softmax",
        ("        scores = scores.masked_fill(mask, -math.inf)", "        pass"),
    ),
    answer(
        "heads",
        "heads are cut without a transpose",
        (
            "x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)",
            "x.view(batch, num_heads, length, d_model // num_heads)",
        ),
    ),
    answer(
        "heads",
        "heads are joined without a transpose",
        ("heads.transpose(1, 2).flatten(2)", "heads.reshape(heads.shape[0], heads.shape[2], -1)"),
    ),
    answer(
        "heads",
        "features of a head are interleaved",
        (
            "x.view(batch, length, num_heads, d_model // num_heads).transpose(1, 2)",
            "x.view(batch, length, d_model // num_heads, num_heads).permute(0, 3, 1, 2)",
        ),
        ("heads.transpose(1, 2).flatten(2)", "heads.permute(0, 2, 3, 1).flatten(2)"),
    ),
    answer(
        "heads",
        "no output projection",
        ("return self.output_projection(merge_heads(heads))", "return merge_heads(heads)"),
    ),
    answer(
        "heads",
        "the mask is not passed",
        ("queries, keys, values, mask)", "queries, keys, values)"),
    ),
    answer(
        "heads",
        "values are made of the keys",
        ("self.value_projection(value)", "self.value_projection(key)"),
    ),
    answer(
        "feed_forward",
        "no activation function",
        ("self.up_projection(x).relu()", "self.up_projection(x)"),
    ),
    answer("feed_forward", "a variance with n - 1", ("unbiased=False", "unbiased=True")),
    answer(
        "feed_forward",
        "eps is added outside the root",
        ("/ (variance + eps).sqrt()", "/ (variance.sqrt() + eps)"),
    ),
    answer(
        "feed_forward",
        "statistics over the sequence",
        (
            "mean = x.mean(-1, keepdim=True)\n    variance = x.var(-1,",
            "mean = x.mean((-2, -1), keepdim=True)\n    variance = x.var((-2, -1),",
        ),
    ),
    answer(
        "feed_forward",
        "the sum is not normalised",
        ("self.norm(x + self.dropout(sublayer(x)))", "x + self.norm(self.dropout(sublayer(x)))"),
    ),
    answer(
        "feed_forward",
        "the residual stream is normalised",
        (
            "return x + self.dropout(sublayer(self.norm(x)))",
            "y = self.norm(x)\n        return y + self.dropout(sublayer(y))",
        ),
    ),
    answer(
        "layers",
        "no causal mask",
        ("hidden = causal_mask(x.shape[1])", "hidden = causal_mask(x.shape[1]) & False"),
    ),
    answer(
        "layers",
        "the mask of the memory is not passed",
        ("memory, memory, mask=memory_mask)", "memory, memory)"),
    ),
    answer(
        "layers",
        "cross-attention to the target itself",
        (
            "self.cross_attention(y, memory, memory, mask=memory_mask)",
            "self.cross_attention(y, y, y)",
        ),
    ),
    answer(
        "layers",
        "one layer is applied several times",
        (
            "        self.layers = nn.ModuleList(\n            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)\n        )",
            "        self.layers = nn.ModuleList([EncoderLayer(d_model, num_heads, d_ff, dropout)] * num_layers)",
        ),
    ),
    answer(
        "layers",
        "the layers are in a list that torch does not see",
        (
            "        self.layers = nn.ModuleList(\n            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)\n        )",
            "        self.layers = [EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)]",
        ),
    ),
    answer(
        "layers",
        "the padding mask of the target is not used",
        ("        if mask is not None:\n            hidden = hidden | mask\n", ""),
    ),
    answer("loss", "padding counts in the denominator", ("/ real.sum()", "/ len(target)")),
    answer(
        "loss",
        "padding is not left out",
        ("real = target != padding_id", "real = target == target"),
    ),
    answer("loss", "the padding id is always 0", ("target != padding_id", "target != 0")),
    answer(
        "loss",
        "the smoothing of padding remains",
        (
            "return losses[real].sum()",
            "losses = (1 - label_smoothing) * of_target * real + label_smoothing * uniform\n    return losses.sum()",
        ),
    ),
    answer(
        "loss",
        "the smoothing is spread over the other tokens only",
        (
            "label_smoothing * uniform",
            "label_smoothing * (uniform * logits.shape[1] - of_target) / (logits.shape[1] - 1)",
        ),
    ),
    answer(
        "loss",
        "a softmax is applied twice",
        ("logits.log_softmax(-1)", "logits.softmax(-1).log_softmax(-1)"),
    ),
    answer(
        "optimizer",
        "no correction of the bias",
        ("mean / (1 - first**self.count)", "mean"),
        ("(square / (1 - second**self.count)).sqrt()", "square.sqrt()"),
    ),
    answer(
        "optimizer",
        "eps is added inside the root",
        (
            "(square / (1 - second**self.count)).sqrt()",
            "(square / (1 - second**self.count) + self.eps).sqrt()",
        ),
        ("(spread + self.eps)", "spread"),
    ),
    answer(
        "optimizer",
        "the betas are exchanged",
        ("first, second = self.betas", "second, first = self.betas"),
    ),
    answer(
        "optimizer",
        "no square root",
        ("(square / (1 - second**self.count)).sqrt()", "(square / (1 - second**self.count))"),
    ),
    answer(
        "optimizer",
        "the rate never falls",
        ("min(step**-0.5, step * warmup_steps**-1.5)", "step * warmup_steps**-1.5"),
    ),
    answer(
        "optimizer",
        "the steps are counted from zero",
        ("        self.count += 1\n", ""),
        (
            "            parameter -= self.lr * corrected / (spread + self.eps)\n",
            "            parameter -= self.lr * corrected / (spread + self.eps)\n        self.count += 1\n",
        ),
        ("first**self.count", "first ** max(self.count, 1)"),
        ("second**self.count", "second ** max(self.count, 1)"),
    ),
    answer(
        "search",
        "the cache is not reordered",
        ("self.keys, self.values = self.keys[rows], self.values[rows]", "pass"),
    ),
    answer(
        "search",
        "only the keys are reordered",
        (
            "self.keys, self.values = self.keys[rows], self.values[rows]",
            "self.keys = self.keys[rows]",
        ),
    ),
    answer(
        "search",
        "the beams of the model are not reordered",
        ("        model.reorder(torch.tensor([row for _, row, _ in kept]))\n", ""),
    ),
    answer(
        "search",
        "finished beams are extended",
        (
            "kept = [each for each in found if each[2] != end_id][:beam_size]",
            "kept = found[:beam_size]",
        ),
    ),
    answer(
        "search",
        "the length penalty is reversed",
        (
            "score / ((5 + length) / 6) ** length_penalty",
            "score * ((5 + length) / 6) ** length_penalty",
        ),
    ),
    answer(
        "search",
        "the search ends with its first finished hypothesis",
        (
            "        kept = [each",
            "        if finished:\n            return max(finished)[1], max(finished)[0]\n        kept = [each",
        ),
    ),
    answer(
        "bleu",
        "matches are not clipped",
        (
            "sum((found & ngrams(reference, n)).values())",
            "sum(c for g, c in found.items() if g in ngrams(reference, n))",
        ),
    ),
    answer(
        "bleu",
        "a mean of the sentences' scores",
        (
            "    pairs = [",
            "    if len(hypotheses) > 1:\n        scores = [bleu([h], [r]) for h, r in zip(hypotheses, references)]\n        return sum(scores) / len(scores)\n    pairs = [",
        ),
    ),
    answer(
        "bleu", "no brevity penalty", ("100 * brevity_penalty(lengths[0], lengths[1]) *", "100 *")
    ),
    answer(
        "bleu",
        "the lengths are exchanged",
        ("brevity_penalty(lengths[0], lengths[1])", "brevity_penalty(lengths[1], lengths[0])"),
    ),
    answer(
        "bleu",
        "an arithmetic mean of the precisions",
        ("math.exp(mean)", "sum(matches / total for matches, total in pairs) / 4"),
    ),
    answer(
        "bleu",
        "long hypotheses are penalised too",
        (
            "    if hypothesis_length >= reference_length:\n        return 1.0\n",
            "    if hypothesis_length > reference_length:\n        return math.exp(1 - hypothesis_length / reference_length)\n",
        ),
    ),
]
