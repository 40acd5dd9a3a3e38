import os
import signal
import socket

from anabranch_server.launcher.polling import Poller, caught_signals


def test_it_calls_back_for_what_is_ready() -> None:
    poller = Poller()
    one, other = socket.socketpair()
    called: list[str] = []
    with one, other:
        poller.add_reader(one.fileno(), lambda: called.append("read"))
        poller.wait(0)
        assert called == []

        poller.add_writer(one.fileno(), lambda: called.append("write"))
        poller.wait(None)
        assert called == ["write"]

        other.send(b"x")
        poller.remove_writer(one.fileno())
        poller.wait(None)
        assert called == ["write", "read"]

        poller.remove_reader(one.fileno())
        poller.remove_reader(one.fileno())
        poller.wait(0)
        assert called == ["write", "read"]


def test_what_a_callback_takes_out_is_not_called_any_more() -> None:
    poller = Poller()
    pairs = [socket.socketpair() for _ in range(2)]
    called: list[int] = []

    def take_all_out(index: int) -> None:
        called.append(index)
        for one, _ in pairs:
            poller.remove_reader(one.fileno())

    for index, (one, other) in enumerate(pairs):
        poller.add_reader(one.fileno(), lambda index=index: take_all_out(index))  # type: ignore[misc]  # binds the value of the loop
        other.send(b"x")

    poller.wait(None)

    assert len(called) == 1
    for one, other in pairs:
        one.close()
        other.close()


def test_the_end_of_a_peer_is_something_to_read() -> None:
    poller = Poller()
    one, other = socket.socketpair()
    called: list[str] = []
    with one:
        poller.add_reader(one.fileno(), lambda: called.append("read"))
        other.close()
        poller.wait(None)
    assert called == ["read"]


def test_signals_are_something_to_poll_for_while_the_block_lasts() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    poller = Poller()
    with caught_signals(signal.SIGUSR1, signal.SIGUSR2) as signals:
        taken: list[signal.Signals] = []
        poller.add_reader(signals.receiver.fileno(), lambda: taken.extend(signals.take()))
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR2)
        poller.wait(None)
        assert taken == [signal.SIGUSR1, signal.SIGUSR2]
        assert signals.take() == []
    assert signal.getsignal(signal.SIGUSR1) is before
    assert signal.set_wakeup_fd(-1) == -1
