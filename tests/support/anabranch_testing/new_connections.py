"""HTTP requests without TLS, each on a connection of its own.

`httpx.get` and its like read all certificates of the system each time, which takes 40 ms of a
processor: more than the server takes for the answer, and much where a test asks again and again.
"""

from functools import partial
from typing import Final

import httpx

__all__ = ["get", "post", "put"]

_TIMEOUT_S: Final = 30.0

get = partial(httpx.get, verify=False, timeout=_TIMEOUT_S)
post = partial(httpx.post, verify=False, timeout=_TIMEOUT_S)
put = partial(httpx.put, verify=False, timeout=_TIMEOUT_S)
