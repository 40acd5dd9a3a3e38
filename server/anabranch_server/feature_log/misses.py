"""Which keys of a logged request no row was found for."""

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.ranking.missing_keys import missing_keys
from anabranch_server.feature_log.entries import Entry

__all__ = ["missed_rows"]


def missed_rows(entry: Entry) -> dict[str, NDArray[np.bool_]] | None:
    """Tell for each feature which candidates have a key without a row.

    Keys are looked up once more, at the store version that the request read; ids that the item
    table lacked count as well.

    Returns:
        Feature -> bool (candidates,), all of them where a key of the user is missed; features
        without misses are left out. None where the version is gone, and its rows with it.
    """
    version, prepared = entry.version(), entry.prepared
    if version is None:
        return None
    tables = missing_keys(entry.rules.plan, prepared.arrays, version.source, prepared.bad)
    flags: dict[str, NDArray[np.bool_]] = {}
    for found in (tables, prepared.missed):
        for name, missed in found.items():
            rows = flags.setdefault(name, np.zeros(prepared.rows, np.bool_))
            rows[... if missed.user else list(missed.candidates)] = True
    return flags
