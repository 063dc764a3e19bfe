"""A silo that misbehaves, in a process of its own. Its keys are good."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from covey.deploy import serve, silo
from covey.deploy.letters import Letter, pack, unpack
from covey.messages import decode

honest = silo.Silo.handle
kept: list[bytes] = []


def liar(self: Any, call: bytes) -> bytes:
    """Round 1: garbage, 2: a wrong shape, 3: NaN, 4: a stale round, 5: an old answer again, 6: another's name, then honest."""
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
    """Asleep in round 2."""
    if unpack(call).round == 2 and decode(unpack(call).payload).kind == "round":
        (self.folder / "asleep").touch()
        time.sleep(50)
    return honest(self, call)


def wrong_key(self: Any, call: bytes) -> bytes:
    """Seals under keys of its own making."""
    from covey.crypto.sealing import sealing

    self.host.keys["sealing"] = sealing.generate_keys("ckks", 16.0, self.setting.clients)
    return honest(self, call)


MODES = {"liar": liar, "slow": slow, "wrong_key": wrong_key}


def join(mode: str, folder: str, data: str, superlink: str, state: str) -> None:
    silo.Silo.handle = MODES[mode]  # type: ignore[method-assign]
    serve.join(Path(folder), Path(data), superlink, Path(state))
