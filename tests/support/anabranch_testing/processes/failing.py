"""Ends as soon as it has begun, with exit code 3."""

import sys

if __name__ == "__main__":
    sys.exit(3)
