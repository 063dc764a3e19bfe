"""A silo's or a further server's end of the line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from covey.deploy.flower.payload import content, record
from covey.deploy.flower.process import RETRY_SECONDS, FlowerEnded, Process, Tls, free_port, last_words, quiet
from covey.errors import CoveyError

ASK_SECONDS = 1.0  # between questions to our SuperNode where it says nothing
GRACE_SECONDS = 5.0  # for a SuperNode that has failed to end by itself
LINGER_SECONDS = 6.0  # for the last answer to leave, where it does not say that it has


class Ear:
    """What a SuperNode says, in its log, about letters and answers: so nobody has to ask it all the time. Where Flower's words
    change, things take up to `ASK_SECONDS` and `LINGER_SECONDS` longer.

    A SuperNode can also lose its main thread, or that of its heartbeat, and stand there without working: struck off by the
    coordinator's SuperLink it sends itself a signal, and two of them at the same time break its own way out.
    """

    def __init__(self) -> None:
        self.heard, self.sent = threading.Event(), 0
        self._failed: float | None = None  # when

    def hear(self, line: bytes) -> None:
        if b"Received successfully" in line:
            self.heard.set()
        elif b"Sent successfully" in line:
            self.sent += 1
            self.heard.set()
        elif line.startswith(b"Traceback") and self._failed is None:
            self._failed = time.monotonic()

    @property
    def stands_still(self) -> bool:
        return self._failed is not None and time.monotonic() - self._failed > GRACE_SECONDS

    def wait(self) -> None:
        self.heard.wait(ASK_SECONDS)
        self.heard.clear()


def answer_calls(
    home: Path,
    superlink: str,
    tls: Tls | None,
    handle: Callable[[bytes], bytes],
    ended: Callable[[], bool],
    say: Callable[[str], None] = print,
) -> None:
    """A node's life: a SuperNode of its own, whose messages `handle` answers, until `ended` says so and the last answer has left.

    A SuperNode that ends is started again: the coordinator may be away, or may not have noticed yet that this node was
    (Flower refuses a second connection under one key until the first is forgotten, which takes up to a minute).
    """
    quiet()
    announced = False
    while not ended():
        try:
            _answer_calls(home, superlink, tls, handle, ended, say)
        except FlowerEnded as e:
            if not announced:
                say(f"no connection to {superlink} yet, trying again: {e}")
            announced = True
            time.sleep(5 * RETRY_SECONDS)


def _answer_calls(
    home: Path,
    superlink: str,
    tls: Tls | None,
    handle: Callable[[bytes], bytes],
    ended: Callable[[], bool],
    say: Callable[[str], None],
) -> None:
    port = free_port()
    command = ["flower-supernode", "--superlink", superlink, "--host", "127.0.0.1", "--port", str(port)]
    if tls is None:
        command += ["--insecure"]
    else:
        command += ["--root-certificates", str(tls.ca), "--auth-supernode-private-key", str(tls.node_key)]
    ear, answers, last = Ear(), 0, 0.0
    process = Process.start(command, home, port, ear.hear)
    try:
        for token in process.tasks("flwr-clientapp"):
            if token is not None:
                try:
                    _answer(process, token, handle)
                    answers, last = answers + 1, time.monotonic()
                except Exception as e:  # Flower's, not `handle`'s: whoever asked will ask again
                    say(f"an answer was lost on its way: {type(e).__name__}")
            elif ended() and (ear.sent >= answers or time.monotonic() - last > LINGER_SECONDS):
                return
            elif ear.stands_still:
                raise FlowerEnded(f"its SuperNode failed and does not end: {last_words(process.log)}")
            else:
                ear.wait()
    finally:
        process.stop()


def _answer(process: Process, token: str, handle: Callable[[bytes], bytes]) -> None:
    from flwr.app import Message
    from flwr.app.error import Error
    from flwr.common.constant import ErrorCode, SubStatus
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
    from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

    client = process.client([RuntimeTokenHttpInterceptor(token)])
    heartbeat = HeartbeatSender(make_task_heartbeat_fn_http(client))
    heartbeat.start()
    try:
        message, context, _, _ = pull_task_input(client)
        data = content(message)
        try:
            if data is None:
                raise CoveyError("a message without bytes")
            reply = Message(record(handle(data)), reply_to=message)
        except CoveyError:  # said to the user by `handle`; the other side learns only that there is no answer
            reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "refused"), reply_to=message)
        push_message(client, reply, context)
        push_task_output(client, context, SubStatus.COMPLETED, "")
    finally:
        heartbeat.stop()
        client.close()
