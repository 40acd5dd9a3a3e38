"""What the versions of a session group run on: built engines and every executor's binding of them.

They are kept by token, so that nothing here keeps a `ServedVersion` alive. Several may run on one
engine; when the last reference to the last of them is gone, the engine is freed by whoever has the
time. So are the lookup plans that executors bound, and with them the memory of a store.
"""

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence

from anabranch_runtime.backends.protocol import Binding, Engine
from anabranch_runtime.executor import Executor
from anabranch_runtime.served import ServedVersion
from anabranch_wire.errors import Unavailable

__all__ = ["Engines"]

_log = logging.getLogger(__name__)


class Engines:
    """The engines of one group. Any thread may call anything.

    Args:
        executors: get a binding of each engine.
        on_unused: told that there is an engine to free. Called wherever the last reference goes,
            maybe in the middle of the group's own work: it may note that, and nothing else.
    """

    def __init__(self, executors: Sequence[Executor], on_unused: Callable[[], None]) -> None:
        self._executors = executors
        self._on_unused = on_unused
        self._lock = threading.Lock()
        self._engines: dict[int, Engine] = {}
        self._watched: Counter[int] = Counter()
        self._plans: Counter[int] = Counter()
        self._gone: deque[tuple[int, int]] = deque()
        self._tokens = 0
        self._closed = False

    def add(self, engine: Engine, bindings: Sequence[Binding]) -> int:
        """Keep an engine with one binding for each executor, and return its token.

        Raises:
            Unavailable: all was freed; the engine stays the caller's.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("the model is being unloaded")
            self._tokens += 1
            token = self._tokens
            self._engines[token] = engine
            for executor, binding in zip(self._executors, bindings, strict=True):
                executor.attach(token, binding)
        return token

    def watch(self, version: ServedVersion) -> None:
        """Note when nobody has `version` any more, which its engine is kept for until then.

        Whoever calls this has another version of that engine, or has just added it.
        """
        plan = 0 if version.source is None else id(version.source.plan)
        with self._lock:
            self._watched[version.token] += 1
            self._plans[plan] += 1
        weakref.finalize(version, self._note, version.token, plan).atexit = False

    def free_unused(self) -> int:
        """Close the engines that no request can name any more, and return how many.

        Takes the time that freeing their memory takes.
        """
        freed = 0
        with self._lock:
            while self._gone:
                token, plan = self._gone.popleft()
                if _is_last(self._plans, plan):
                    for executor in self._executors:
                        executor.lookups.let_go(plan)
                if _is_last(self._watched, token):
                    freed += self._close(token)
        return freed

    def rebind(self, executor: Executor) -> None:
        """Give an executor new bindings, whose staging nobody has left half done.

        Where there is no memory for one, it keeps what it has, rather than not to go on at all.
        """
        with self._lock:
            for token, engine in self._engines.items():
                try:
                    binding = engine.bind()
                except Exception:  # the edge of a thread's last act
                    _log.exception("no new binding", extra={"event": "executor_error"})
                    continue
                old = executor.detach(token)
                executor.attach(token, binding)
                if old is not None:
                    old.close()

    def close(self) -> None:
        """Close every engine; the executors have ended."""
        with self._lock:
            self._closed = True
            for token in list(self._engines):
                self._close(token)

    def _note(self, token: int, plan: int) -> None:
        # May run inside any allocation of any thread, also of one that holds a lock of this group.
        self._gone.append((token, plan))
        self._on_unused()

    def _close(self, token: int) -> bool:
        engine = self._engines.pop(token, None)
        if engine is None:
            return False
        for executor in self._executors:
            binding = executor.detach(token)
            if binding is not None:
                binding.close()
        engine.close()
        return True


def _is_last(counts: Counter[int], key: int) -> bool:
    """Count one holder less; whether that was the last."""
    counts[key] -= 1
    if counts[key]:
        return False
    del counts[key]
    return True
