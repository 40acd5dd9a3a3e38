"""Hypothesis strategies of raw values of features."""

from typing import Any, Final

from hypothesis import strategies as st

__all__ = ["INTS", "KNOWN_INTS", "KNOWN_WORDS", "raw_values"]

WORDS: Final = ("red", "green", "", "größe", "日本", "x" * 40, "null", "7", "a: b #c")
INTS: Final = (0, 1, -1, 7, 3, 2**11 + 1, 2**24 + 1, -(2**31) - 1, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS: Final = (0.0, -0.5, 0.7, 18.0, 1.0, 65504.0, 65520.0, 1e30)
KNOWN_INTS: Final = (0, 1, -1, 7, 3)
KNOWN_WORDS: Final = ("red", "green", "", "größe", "7")


def raw_values(kind: str, *, safe: bool = False) -> st.SearchStrategy[Any]:
    """Raw values of a type; `safe` ones are in most vocabularies and places."""
    if kind == "string":
        words = st.sampled_from(KNOWN_WORDS if safe else WORDS)
        return words if safe else st.one_of(words, words, st.text(max_size=8).filter(_is_utf8))
    if kind == "float32":
        floats = st.sampled_from(FLOATS[:5] if safe else FLOATS)
        return floats if safe else st.one_of(floats, st.floats(-100, 100, width=32))
    ints = st.sampled_from(KNOWN_INTS if safe else INTS)
    return ints if safe else st.one_of(st.sampled_from(KNOWN_INTS), ints, st.integers(-99, 99))


def _is_utf8(text: str) -> bool:
    return not any(0xD800 <= ord(one) < 0xE000 for one in text)
