"""A host in a Ray actor's process: the other side of `engines.ray`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from covey.engines.hosts.host import Host
from covey.engines.ray.host_state import federation_of, unpack
from covey.engines.simulate import respond
from covey.errors import CoveyError
from covey.messages import decode, encode, to_device
from covey.version import __version__

Bytes = NDArray[np.uint8]  # Ray moves arrays without copying them, bytes not


def raw(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


class Worker:
    """Answers the requests of `RayWorkers`; its host is made for the first of them."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.end()

    def begin(self, shared: list[Any], keys: bytes, device: str = "cpu") -> None:
        """A run: where its parcel and its data lie, the keys of this worker's clients, and whether it computes on its GPU."""
        self.end()
        self._shared, self._keys, self._device = shared, keys, device if torch.cuda.is_available() else "cpu"

    def end(self) -> None:
        self._shared, self._keys, self._device = [], b"", "cpu"
        self._host = functools.cache(self._make)
        self._memories: dict[int, dict[str, Any]] = {}
        self._held = 0  # number of the messages below
        self._messages: list[Any] = []

    def ready(self) -> str:
        return __version__

    def answer(self, request: bytes, messages: tuple[int, list[Any]]) -> tuple[Bytes, list[int], Bytes]:
        """(the answer, the clients whose memories changed, these memories)"""
        import ray

        asked = decode(request)
        number, place = messages
        if place and number != self._held:
            self._messages, self._held = self._here(decode(ray.get(place[0]))), number
        answer = next(respond(self._host, asked, self._messages, encode))
        clients = [client for client, _, _ in asked.get("calls", [])] if asked["do"] in ("run", "advise") else []
        changed = self._host().memories.changed(clients) if self._host.cache_info().currsize else {}
        try:
            return raw(answer), list(changed), raw(encode(changed))
        except CoveyError as e:  # a memory that cannot be stored: no checkpoint could hold it either
            return raw(encode({"ticket": 0, "refused": str(e)})), [], raw(b"")

    def remember(self, places: list[tuple[list[int], list[Any]]]) -> bool:
        """Takes the memories of clients; True: some are lost."""
        import ray

        for clients, place in places:
            try:
                memories = decode(ray.get(place[0]))
            except ray.exceptions.RayError:
                return True
            self._memories |= self._here({i: memories[i] for i in clients})
        return False

    def _here(self, content: Any) -> Any:
        """Tensors on the GPU that Ray gave to this worker, if any; messages and memories cross as numbers."""
        return to_device(content, self._device)

    def _make(self) -> Host:
        import ray

        parcel, data = ray.get(self._shared)
        host = unpack(parcel, self._keys, federation_of(data))
        host.memories.restore(self._memories)
        return host
