"""`python -m anabranch_server.differences FOLDER A B`: compares snapshots of the model in FOLDER.

Its standard output is a `DifferenceView`, or a `ComparisonFailed` and exit code 1.
"""

import os
import sys

import msgspec

from anabranch_server.differences.child import ComparisonFailed
from anabranch_server.differences.reading import read_difference
from anabranch_wire.errors import AnabranchError


def main() -> int:
    """Compare at the lowest priority; return the exit code."""
    os.nice(19)
    folder, before, after = sys.argv[1:]
    try:
        told: object = read_difference((folder, before), (folder, after))
        code = 0
    except AnabranchError as error:
        told, code = ComparisonFailed(type(error).__name__, error.message), 1
    sys.stdout.buffer.write(msgspec.json.encode(told))
    return code


if __name__ == "__main__":
    sys.exit(main())
