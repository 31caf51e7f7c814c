r"""BERT: find the sentences whose meaning is most similar to a query's.

    python examples/pretrained/bert.py sentence-transformers/all-MiniLM-L6-v2 \
        "how do plants eat?" --file sentences.txt

The query and each line of the file are encoded as vectors. The lines of highest similarity to the
query are printed, the highest first. The similarity is the cosine of the angle between two vectors,
or their dot product if the model was trained for that. The model is a folder, or a name on the
Hugging Face hub, as ``sentence-transformers`` publishes it.

BERT (``bert_model.py``) computes a vector for each token, and so do its relatives DistilBERT and
RoBERTa. Sentence-BERT (Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084) pools the
vectors into one for the sentence, often their mean (``pooling.py``), and is trained so that
sentences of similar meaning have a high cosine similarity.

Next: ``marian.py``, an encoder and a decoder.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))  # finds the other packages when run as a program

from common.options import Count, parse
from common.program import run_program
from pretrained.arguments import ModelOptions


@dataclass(frozen=True)
class Bert(ModelOptions):
    """The options of the command line.

    Attributes:
        query: The text to compare the lines with.
        file: File of sentences, one per line.
        best: Number of lines to print.
    """

    query: str
    file: Path = field(kw_only=True)
    best: Count = field(default=5, kw_only=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status."""
    return run_program(lambda: run(parse(arguments, __doc__, Bert)))


def run(options: Any) -> None:
    """Run the program with the options of the command line."""
    from pretrained.bert_sentences import find_nearest  # only now: it imports torch

    find_nearest(options)


if __name__ == "__main__":
    sys.exit(main())
