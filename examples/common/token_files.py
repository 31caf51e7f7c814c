"""Token files: token ids of many sequences on disk, memory-mapped instead of loaded.

A folder of token files holds::

    tokens.bin       the token ids of all sequences, one after another (uint16 or uint32)
    offsets.bin      where each sequence begins, and where the last one ends (int64)
    checksums.bin    the CRC-32 of the offsets and of the tokens of each chunk of sequences (uint32)
    manifest.json    format version, what the files were made from, and the size of each

All numbers are little-endian. The folder appears by one rename, when it is complete. Opening it
reads the manifest and the checksums alone, so it takes the same time for any number of tokens; the
content of a chunk is verified when the chunk is used (:meth:`TokenFiles.verify`). The operating
system reads a page of a memory-mapped file when it is accessed, and discards it when memory is
needed elsewhere.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from common.errors import UserError
from common.files import file_hash

FORMAT_VERSION = 1
CHUNK = 2048
"""Number of sequences that have one checksum."""

Tokens = npt.NDArray[np.unsignedinteger[Any]]
Offsets = npt.NDArray[np.int64]

TYPES = np.dtype("<u2"), np.dtype("<u4")
_MANIFEST = "manifest.json"


class StaleError(UserError):
    """A folder of token files is missing, incomplete, or made from something else."""


def token_type(vocabulary: int) -> np.dtype[Any]:
    """Return the smallest type of token ids below ``vocabulary``."""
    return TYPES[vocabulary > 2**16]


class TokenWriter:
    """Writes token files into a folder, part by part.

    Args:
        folder: An empty folder.
        dtype: The type of the token ids; see :func:`token_type`.

    Attributes:
        sequences: Number of sequences so far.
        tokens: Number of tokens so far.
    """

    def __init__(self, folder: Path, dtype: np.dtype[Any]) -> None:
        self.folder, self.dtype = folder, dtype
        self.sequences = self.tokens = 0
        self._token_file, self._offset_file = (
            (folder / f"{name}.bin").open("xb") for name in ("tokens", "offsets")
        )
        self._offset_file.write(np.zeros(1, "<i8").tobytes())

    def __enter__(self) -> "TokenWriter":
        """Write more parts until the end of the ``with`` block."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the files."""
        self._token_file.close()
        self._offset_file.close()

    def append(self, tokens: Tokens, lengths: npt.NDArray[np.int64]) -> None:
        """Append sequences.

        Args:
            tokens: Their token ids, one sequence after another.
            lengths: The length of each.
        """
        self._token_file.write(tokens.astype(self.dtype, copy=False).tobytes())
        self._offset_file.write((self.tokens + np.cumsum(lengths)).astype("<i8").tobytes())
        self.sequences += len(lengths)
        self.tokens += int(lengths.sum())

    def finish(self, made_from: Mapping[str, Any], *, others: Iterable[str] = ()) -> None:
        """Write the checksums and the manifest.

        Args:
            made_from: JSON that describes what the token files were made from.
            others: Names of other files in the folder, which are checked with the token files.
        """
        self.__exit__()
        tokens, offsets = _map(self.folder, self.dtype)
        sums = np.array([*_checksums(tokens, offsets)], "<u4")
        (self.folder / "checksums.bin").write_bytes(sums.tobytes())
        hashed = {name: file_hash(self.folder / name) for name in ("checksums.bin", *others)}
        content = {
            "format_version": FORMAT_VERSION,
            "dtype": self.dtype.str,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "sha256": hashed,
            "made_from": made_from,
        }
        (self.folder / _MANIFEST).write_text(json.dumps(content, indent=1), encoding="utf-8")


class TokenFiles:
    """Token files that are memory-mapped.

    Args:
        folder: The folder that a :class:`TokenWriter` has finished.
        made_from: What they must have been made from.

    Attributes:
        folder: The folder.
        tokens: The token ids of all sequences, of shape (T,).
        offsets: Where each sequence begins, and the end of the last, of shape (N + 1,).

    Raises:
        StaleError: If the folder is missing or incomplete, or was made from something else.
        UserError: If it cannot be read.
    """

    def __init__(self, folder: Path, made_from: Mapping[str, Any]) -> None:
        self.folder = folder
        try:
            manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
            if manifest["format_version"] != FORMAT_VERSION:
                raise StaleError(f"{folder} has another format version")
            if manifest["made_from"] != json.loads(json.dumps(made_from)):
                raise StaleError(f"{folder} was made from other files or tokenizers")
            dtype: np.dtype[Any] = {each.str: each for each in TYPES}[manifest["dtype"]]
            sequences, length = int(manifest["sequences"]), int(manifest["tokens"])
            sizes = {
                "tokens.bin": length * dtype.itemsize,
                "offsets.bin": (sequences + 1) * 8,
                "checksums.bin": -(-sequences // CHUNK) * 8,
            }
            for name, size in sizes.items():
                found = (folder / name).stat().st_size
                if found != size:
                    raise StaleError(f"{folder / name} holds {found} bytes instead of {size}")
            for name, expected in manifest["sha256"].items():
                if file_hash(folder / Path(name).name) != expected:
                    raise StaleError(f"{folder / name} fails its SHA-256 checksum")
            self.tokens, self.offsets = _map(folder, dtype)
            self._checksums = np.fromfile(folder / "checksums.bin", "<u4").reshape(-1, 2)
        except FileNotFoundError as error:
            raise StaleError(f"{error.filename} is missing") from error
        except OSError as error:
            raise UserError(f"cannot read {folder}: {error.strerror}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StaleError(f"{folder / _MANIFEST} is damaged: {error!r}") from error

    def verify(self, chunks: Iterable[int], *, offsets_only: bool = False) -> None:
        """Verify the checksums of some chunks, before they are used.

        Args:
            chunks: Their numbers, from 0.
            offsets_only: Whether to leave the tokens unread.

        Raises:
            UserError: If a bit has changed since the files were written.
        """
        for chunk in chunks:
            expected = self._checksums[chunk]
            if _offsets_checksum(self.offsets, chunk) != expected[0]:
                name = "offsets.bin"
            elif not offsets_only and _checksum(self.tokens, self.offsets, chunk) != expected[1]:
                name = "tokens.bin"
            else:
                continue
            raise UserError(
                f"{self.folder / name} is damaged: chunk {chunk} fails its checksum; remove the "
                f"folder {self.folder}, which the next start writes again"
            )


def _map(folder: Path, dtype: np.dtype[Any]) -> tuple[Tokens, Offsets]:
    """Memory-map tokens and offsets; an empty file cannot be mapped."""
    arrays = []
    for name, kind in (("tokens.bin", dtype), ("offsets.bin", np.dtype("<i8"))):
        path = folder / name
        is_empty = path.stat().st_size == 0
        # A plain array: indexing a np.memmap itself takes several times as long.
        arrays.append(np.zeros(0, kind) if is_empty else np.asarray(np.memmap(path, kind, "r")))
    return arrays[0], arrays[1]


def _checksums(tokens: Tokens, offsets: Offsets) -> Iterator[tuple[int, int]]:
    for chunk in range(-(-(len(offsets) - 1) // CHUNK)):
        yield _offsets_checksum(offsets, chunk), _checksum(tokens, offsets, chunk)


def _offsets_checksum(offsets: Offsets, chunk: int) -> int:
    return zlib.crc32(offsets[chunk * CHUNK : (chunk + 1) * CHUNK + 1].data)


def _checksum(tokens: Tokens, offsets: Offsets, chunk: int) -> int:
    last = min((chunk + 1) * CHUNK, len(offsets) - 1)
    return zlib.crc32(tokens[offsets[chunk * CHUNK] : offsets[last]].data)
