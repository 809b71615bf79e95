"""Weights, and what they make of a prompt: words <-> tokens, the next token, the prefix cache."""

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Tokens = tuple[int, ...]

END_TOKEN = 2
"""The token with which an answer ends by itself."""

_SPECIAL = 3
_WORDS = 253
_WORD = re.compile(r"w(0|[1-9][0-9]{0,2})")

# Nothing is ever evicted from the cache; this bound keeps a long run from filling the memory.
_MAX_PREFIXES = 1 << 20


@dataclass(frozen=True)
class Weights:
    """One set of weights: where they came from, what they are called, and the number of loads before them."""

    path: str
    version: str
    load: int = 0

    def same_as(self, other: "Weights") -> bool:
        """A new name alone makes no other weights."""
        return self.load == other.load or self.content == other.content

    @property
    def content(self) -> tuple[str, ...]:
        """What the tensors hold: the same for equal weights."""
        return (self.path, self.version)


def encode(text: str) -> Tokens:
    """The tokens of a text, one a word. `w0` to `w252` are words of their own, others share them."""
    return tuple(_SPECIAL + _word(word) for word in text.split())


def decode(tokens: Sequence[int]) -> str:
    """The text of generated tokens: every word after a space."""
    return "".join(f" w{token - _SPECIAL}" for token in tokens if token >= _SPECIAL)


def fingerprint(prompt: Tokens, adapter: str = "") -> bytes:
    """What `next_token` needs to know of a prompt, and of the path of the adapter it is for."""
    return hashlib.blake2b((repr(prompt) + adapter).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def next_token(weights: Weights, cached_by: Weights, prompt: bytes, position: int) -> int:
    """The token at `position` of the answer to a prompt, given by its fingerprint.

    Path and version of the weights decide it. Where other weights computed the cached
    part of the prompt it is another token, and wrong: so does a cache that was not flushed.
    """
    stale = None if weights.same_as(cached_by) else cached_by.content
    seed = repr((*weights.content, stale, prompt, position)).encode()
    return _SPECIAL + int.from_bytes(hashlib.blake2b(seed, digest_size=4).digest(), "big") % _WORDS


def _word(word: str) -> int:
    match = _WORD.fullmatch(word)
    if match and int(match[1]) < _WORDS:
        return int(match[1])
    return zlib.crc32(word.encode("utf-8", "surrogatepass")) % _WORDS


class PrefixCache:
    """Which prefixes of prompts are computed, and by which weights."""

    def __init__(self) -> None:
        self._computed_by: dict[int, Weights] = {}

    def prefill(self, prompt: Tokens, weights: Weights) -> tuple[int, Weights]:
        """Compute a prompt: how many of its tokens were cached, and by which weights.

        The last token is always computed, as it gives the first of the answer.
        """
        if len(self._computed_by) > _MAX_PREFIXES:
            self.clear()
        cached, cached_by = 0, weights
        for length, prefix in enumerate(_prefixes(prompt), 1):
            by = self._computed_by.get(prefix)
            if by is None:
                self._computed_by[prefix] = weights
            elif length < len(prompt):
                # A longer prefix is never older than a shorter one: the first decides.
                cached, cached_by = length, by if length == 1 else cached_by
        return cached, cached_by

    def clear(self) -> None:
        self._computed_by.clear()


def _prefixes(prompt: Tokens) -> Iterator[int]:
    """A key for every prefix of a prompt, the shortest first."""
    key = 0
    for token in prompt:
        key = hash((key, token))
        yield key
