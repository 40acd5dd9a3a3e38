"""Triton's HTTP client, closed where it was made and nowhere else."""

from tritonclient.http import InferenceServerClient

__all__ = ["retire_http_client"]


def retire_http_client(client: InferenceServerClient) -> None:
    """Close a client for good.

    It closes itself again when it is collected, maybe on another thread, where gevent must not run:
    from now on that does nothing.
    """
    client.close()
    client.close = lambda: None
