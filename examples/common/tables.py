"""Tables: rows of text in aligned columns."""

from collections.abc import Sequence

from common.terminal import cells


def format_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    words: int,
    width: int | None = None,
) -> str:
    """Format a table: the first columns hold ``words`` and are left-aligned, the others numbers.

    Args:
        header: The names of the columns.
        rows: The cells of each row.
        words: Number of columns of words.
        width: Number of columns of the terminal. A wider table is continued below, with the
            columns of words repeated. None for a table without continuation.

    Example:
        >>> print(format_table(["", "BLEU", "chrF"], [["a", "7", "9"]], words=1, width=8))
           BLEU
        a     7
        <BLANKLINE>
           chrF
        a     9
    """
    lines = [header, *rows]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(header))]
    parts: list[list[int]] = [[]]
    for column in range(words, len(header)):
        shown = [*range(words), *parts[-1], column]
        if width is not None and parts[-1] and sum(widths[i] + 2 for i in shown) - 2 > width:
            parts.append([])
        parts[-1].append(column)
    return "\n\n".join(
        "\n".join(
            "  ".join(
                _padded(line[column], widths[column], is_word=column < words)
                for column in (*range(words), *part)
            ).rstrip()
            for line in lines
        )
        for part in parts
    )


def _padded(cell: str, width: int, *, is_word: bool) -> str:
    space = " " * (width - cells(cell))
    return cell + space if is_word else space + cell
