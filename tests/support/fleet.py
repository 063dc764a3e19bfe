"""A node with a good key that speaks Flower's Fleet protocol itself, and replies whatever it likes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supernode.fleet_http_connection import http_request_response


class Node:
    def __init__(self, port: int, ca: Path, key: Path) -> None:
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        self._stack = ExitStack()
        keys = (private, private.public_key())
        calls = self._stack.enter_context(http_request_response(f"localhost:{port}", False, str(ca), keys))
        _, self._receive, self._send, _, _, _, self._push, _ = calls

    def pull(self) -> Message:
        """The next question, of which only the address is needed."""
        until = time.monotonic() + 20
        while (received := self._receive()) is None:
            assert time.monotonic() < until
            time.sleep(0.1)
        return received[0]

    def reply(self, question: Message, data: bytes, announce_only: bool = False) -> None:
        """An array of bytes, in which Flower expects one that numpy has stored."""
        array = Array(dtype="uint8", shape=(len(data),), stype="numpy.ndarray", data=data)
        message = Message(RecordDict({"covey": ArrayRecord({"bytes": array})}), reply_to=question)
        self._post(message, announce_only)

    def answer(self, question: Message, data: bytes) -> None:
        array = Array(np.frombuffer(data, np.uint8))
        self._post(Message(RecordDict({"covey": ArrayRecord({"bytes": array})}), reply_to=question), False)

    def _post(self, message: Message, announce_only: bool) -> None:
        message.metadata.__dict__["_message_id"] = message.object_id
        missing, session = self._send(message, get_object_tree(message), 0.1)
        if announce_only:
            return
        for id, piece in get_all_nested_objects(message).items():
            if id in missing:
                self._push(message.metadata.run_id, session, id, piece.deflate())

    def close(self) -> None:
        self._stack.close()
