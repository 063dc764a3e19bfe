"""The target of masked averages: a silo's upload or its shares, and the parameters of all, with something changed."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from covey import roles
from covey.algorithms.admission import admit, admit_advice
from covey.algorithms.averaging import LocalModel
from covey.algorithms.contract import Client, Server, Setting, make_keys, own_keys
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.sums import masking
from covey.crypto.openings.cohort import read_cohort
from covey.errors import CoveyError
from covey.learn.work import Plan
from fuzz.engine import Attempt, Choices, Fault, Target, flip
from fuzz.mutation import changed

CLIENTS, WEIGHTS = 5, 6
SETTING = Setting(0, CLIENTS, 1, 5, Plan(), torch.zeros(1, WEIGHTS), torch.ones(WEIGHTS, dtype=torch.bool), "secagg")
ALGORITHM = FedAvg(weighting="clients")


def _masks(folder: Path) -> Attempt:
    keys = make_keys(ALGORITHM, SETTING)
    public = keys["server"]["sealing"]
    replies = {
        i: _worked(masking.hidden(_client(keys, i), None, LocalModel(torch.full((WEIGHTS,), i / 4), 1), "clients"))
        for i in range(5)
    }

    def attempt(data: bytes) -> None:
        choices = Choices(data)
        if choices.below(6) == 0:
            read_cohort(flip(public, Random(choices.below(2**32))))
            return
        liar, in_upload = choices.below(CLIENTS), bool(choices.below(2))

        def consult(questions: Any, enough: int) -> dict[int, Any]:
            answers: dict[int, Any] = {}
            for j, question in questions.items():
                advice = _worked(masking.help_unmask(_client(keys, j), question, 1))
                if j == liar and not in_upload:
                    advice = changed(advice, choices)
                    admit_advice(ALGORITHM, SETTING, keys["server"], advice)
                answers[j] = advice
            return answers

        sent = dict(replies)
        state = ALGORITHM.start(SETTING)
        if in_upload:
            sent[liar] = changed(replies[liar], choices)
            admit(ALGORITHM, state, SETTING, keys["server"], sent[liar])
        server = Server(1, 0, SETTING, keys["server"], _nobody, lambda name: nullcontext(), consult=consult)
        after = ALGORITHM.aggregate(server, state, iter(sent.items()))
        roles.refuse_infinite(after)
        if not in_upload and after is not state and not np.allclose(after.model, 0.5, atol=1e-6):
            raise Fault("shares of a liar have changed the mean")

    return attempt


def _client(keys: Any, i: int) -> Client:
    return Client(i, 1, 0, 1, Plan(), SETTING, {}, own_keys(keys["clients"], i), data=lambda: None)  # type: ignore[arg-type,return-value]


def _worked(turn: Any) -> Any:
    try:
        work = next(turn)
        turn.send(work.function(*work.arguments))
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it asks for more")


def _nobody(party: str, question: Any) -> Any:
    raise CoveyError("there is no other server")


TARGETS = (Target("masks", _masks, longest=300, modules=("covey.crypto.openings", "covey.algorithms.sums"), weight=1),)
