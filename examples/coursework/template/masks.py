"""Unit 4: masks. Chapter 5 of the book.

A mask is boolean, and True hides: it marks a key that a query must not attend to. Rows are queries,
columns are keys. Masks are combined with ``|``.
"""

from torch import Tensor


def causal_mask(query_length: int, key_length: int | None = None) -> Tensor:
    """Build the mask that hides the future: a position attends to itself and to earlier positions.

    With more keys than queries, the queries are the last positions: the last query attends to every
    key.

    Args:
        query_length: L, the number of queries.
        key_length: S, the number of keys; L if None.

    Returns:
        Boolean mask of shape (L, S); True hides.
    """
    raise NotImplementedError


def padding_mask(tokens: Tensor, padding_id: int = 0) -> Tensor:
    """Build the mask that hides padding among the keys.

    Args:
        tokens: Token ids, of shape (B, S).
        padding_id: Id of the padding token.

    Returns:
        Boolean mask of shape (B, 1, 1, S), the same for all heads and queries; True hides.
    """
    raise NotImplementedError
