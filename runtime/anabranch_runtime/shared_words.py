"""64-bit words that the processes of a server share, such as the epoch of each model.

`SharedWords` is the native class itself, since a word is read on the path of every request. Any
thread of any process may read and write at any time; a value that was read brings along everything
that its writer wrote before it. Layout: docs/formats.md, section "Shared words".

- `SharedWords.create(words)`: new words, all 0. Raises ValueError for a count outside 1 to 2^20.
- `SharedWords.open(fd, *, writable)`: the words behind a descriptor, which stays the caller's and
  may be closed afterwards. Raises `Corrupt` where there are none, PermissionError where writing is
  asked of a descriptor that only reads.
- `load(index)`, `store(index, value)`, `add(index, amount)`, the sum modulo 2^64. Raise IndexError;
  PermissionError for a change of words that were opened for reading.
- `fd`: the words' own descriptor, closed with them. `reader_fd()`: a new one through which nobody
  can write; the caller closes it.

Invariant: a word never moves, and its size is sealed; so no access can fail later.
"""

from anabranch_runtime._native import SharedWords

__all__ = ["SharedWords"]
