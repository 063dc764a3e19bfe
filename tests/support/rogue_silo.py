"""A silo that misbehaves, in a process of its own. Its keys are good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from covey.deploy import serve, silo
from covey.deploy.letters import Letter, pack, unpack
from covey.messages import decode
from support.patience import until

honest = silo.Silo.handle
kept: list[bytes] = []


def liar(self: Any, call: bytes) -> bytes:
    """Waits. Round 1: garbage, 2: a wrong shape, 3: NaN, 4: a stale round, 5: an old answer again, 6: another's name, then
    honest.
    """
    if is_of_round(call, 1):
        wait_to_go_on(self)
    answer: bytes = honest(self, call)
    envelope = unpack(answer)
    letter: Letter = decode(envelope.payload)
    if letter.kind != "round":
        return answer
    kept.append(answer)
    told, round = letter.body, envelope.round

    def signed(body: Any, round: int, answers: str = letter.answers) -> bytes:
        return bytes(self.mailbox.write(letter.run, "round", letter.receiver, round, body, answers)[0])

    if round == 1:
        return b"\x80\x04\x95 this is a pickle, or nothing at all"
    if round == 2:
        return signed(replace(told, reply=replace(told.reply, model=torch.zeros(7))), round)
    if round == 3:
        return signed(replace(told, reply=replace(told.reply, model=told.reply.model * float("nan"))), round)
    if round == 4:
        return signed(told, round - 1)
    if round == 5:
        return kept[0]
    if round == 6:
        return pack(replace(envelope, sender="client:1"))
    return answer


def slow(self: Any, call: bytes) -> bytes:
    """In round 1 it seals under keys of its own making, in round 2 it is asleep."""
    from covey.crypto.sealing import sealing

    if not is_of_round(call, 1):
        if is_of_round(call, 2):
            wait_to_go_on(self)
        return honest(self, call)
    kept_key = self.host.keys["sealing"]
    self.host.keys["sealing"] = sealing.generate_keys("ckks", 16.0, self.setting.clients)
    try:
        return honest(self, call)
    finally:
        self.host.keys["sealing"] = kept_key


def held_in(number: int) -> Callable[[Any, bytes], bytes]:
    """Honest, and slow in this round."""

    def held(self: Any, call: bytes) -> bytes:
        if is_of_round(call, number):
            wait_to_go_on(self)
        return honest(self, call)

    return held


def is_of_round(call: bytes, round: int) -> bool:
    return unpack(call).round == round and decode(unpack(call).payload).kind == "round"


def wait_to_go_on(self: Any) -> None:
    """Until the test says so: nothing happens behind its back on a machine that is faster or slower than expected."""
    (self.folder / "asleep").touch()
    until((self.folder / "go on").exists)


MODES = {"liar": liar, "slow": slow, "held": held_in(2), "late": held_in(1), "tired": held_in(4)}


def join(mode: str, folder: str, data: str, superlink: str, state: str) -> None:
    silo.Silo.handle = MODES[mode]  # type: ignore[method-assign]
    serve.join(Path(folder), Path(data), superlink, Path(state))
