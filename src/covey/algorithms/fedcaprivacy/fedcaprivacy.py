"""FedCAPrivacy: Wei et al., Privacy-Preserving Heterogeneous Federated Learning with Anonymous Adaptive Clustering.

Participants seal their models for a cloud provider (CSP) and send them to a business server (BS), which covers them with one
common blind, shuffles them and passes them on. The CSP opens, clusters and averages covered rows without names; BS uncovers
the averages, which only participants can open, and hands each participant those of its clusters. Clustering happens in
round 1 and then with probability 1/(1 + αr). `envelopes.py` and `two_servers.py` hold the parties.

Ours where the paper is silent or slips: the blind itself is removed from a mean (not μ/|C|); memberships stay with their
participants although rows are shuffled anew; the coin that decides on clustering is BS's, so that the CSP gets old
memberships only when it needs them; clusters below `min_size` members give no model; `encryption = "bfv"`; mitigations against
linking rows of two rounds: moved and turned blocks of coordinates, rows only when they are clustered, sketches in their place
(`exchanges.py`).

    covey reproduce fedcaprivacy --table table1
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting, servers_draw
from covey.algorithms.fedcaprivacy.collusion import OpenedPackage, OpenedRow, opened_together
from covey.algorithms.fedcaprivacy.envelopes import (
    BS,
    CSP,
    KEY_KINDS,
    Package,
    issue_keys,
    open_package,
    pad_model,
    seal_row,
)
from covey.algorithms.fedcaprivacy.exchanges import (
    SPARE,
    Averaged,
    answer_request,
    answers_tell,
    by_rows,
    by_sketches,
    by_sums,
    check_question,
    check_request,
)
from covey.algorithms.fedcaprivacy.two_servers import (
    BusinessServer,
    BusinessState,
    CloudProvider,
    CoveredMeans,
    CoveredRound,
    CoveredSums,
    Matrix,
    settle_memberships,
)
from covey.algorithms.robust.averages import UNDER_SEALS
from covey.crypto.blinded.blinded import permutation, sealer, secure_bits, terms_for
from covey.crypto.blinded.integers import rounded
from covey.crypto.key_kinds import Describe
from covey.crypto.signatures import Envelope
from covey.errors import CoveyError, meant
from covey.leaks import EAVESDROPPER, IDENTITY, ISOLATION, LINKAGE, SERVER, SERVERS, Given
from covey.learn.work import Compute, Train, Work, rowwise
from covey.measures import HIDDEN, QUANTILES, Measure

MOST_BUCKETS = 32  # weights that a Paillier ciphertext holds at least
SUMMING = ("sums", "sketch")  # mitigations under which the CSP sees sums of clusters where memberships are known
CHOICES = {
    "mitigation": ("none", "rearrange", "sums", "sketch"),
    "alignment": ("kept", "scrambled"),
    "draw": ("keyed", "secret"),
}


@dataclass(frozen=True)
class FedCAPrivacy:
    name: ClassVar[str] = "fedcaprivacy"
    label: ClassVar[str] = "FedCAPrivacy"
    title: ClassVar[str] = "soft spectral clusters of blinded, shuffled models by two servers (Wei et al.)"
    family: ClassVar[str] = "private"
    surveyed: ClassVar[bool] = True
    sealing: ClassVar[str] = "rows"
    REFUSED: ClassVar[Mapping[str, str]] = UNDER_SEALS
    server: ClassVar[str] = BS
    further: ClassVar[tuple[str, ...]] = (CSP,)
    sends: ClassVar[Messages] = (Package,)
    replies: ClassVar[Messages] = (Envelope,)
    asks: ClassVar[Messages] = (CoveredRound, CoveredSums)
    answers: ClassVar[Messages] = (CoveredMeans, CoveredSums)
    together: ClassVar[Messages] = (OpenedPackage, OpenedRow)
    key_kinds: ClassVar[Mapping[str, Describe]] = KEY_KINDS
    gives: ClassVar[tuple[Given, ...]] = (
        Given(
            IDENTITY, (SERVER,), "it is told the memberships of the rows that it shuffled, and sends models accordingly"
        ),
        Given(
            IDENTITY,
            (EAVESDROPPER,),
            "every package lists its receiver's clusters, where the line is not encrypted",
        ),
        Given(LINKAGE, (SERVER,), "it shuffles the rows itself"),
        Given(ISOLATION, (SERVERS,), "one holds every participant's sealed model, the other the key that opens it"),
    )

    measures: ClassVar[Mapping[str, Measure]] = {
        "eigengap": Measure(
            "Eigengap", "gap", "Gap between the eigenvalues that part the clusters; near 0, their number is a guess."
        ),
        "affinity_quantiles": Measure(
            "Affinities",
            "affinity",
            "Quantiles of clients' similarity. If all are near 0 or near 1, γ does not fit.",
            shown=QUANTILES,
        ),
        "order": Measure("Order of the rows", shown=HIDDEN, secret=True),  # whose row is whose, for scoring
    }

    alpha: float = 0.1  # α: clustering in round r has probability 1/(1 + αr); 0: every round
    every: int = 0  # > 0: clustering every so many rounds instead
    gamma: float = 0.5  # γ: scale of the affinity …
    median: bool = False  # … in units of the median distance between two models
    min_size: int = 3  # members below which a cluster gives no model; with two each could compute the other's
    # "rearrange": BS moves and turns blocks of coordinates; "sums": the CSP sees rows only when it clusters; "sketch": never
    mitigation: str = "none"
    buckets: int = 8  # numbers in a sketch, 32 at most
    noise: float = 0.0  # on sketches: the distance that it puts between two equal models
    shuffle: bool = True  # ablation: false shows the CSP the rows in the order of the participants
    alignment: str = "kept"  # ablation: "scrambled" gives old memberships to other rows, as a fresh shuffle would
    bits: int = 2048  # of a Paillier modulus; 3072 for 128-bit security
    fast_opening: bool = (
        False  # Paillier keys that open three times faster, on one more assumption: crypto/paillier/paillier.py
    )
    max_age: float = 3600.0  # seconds after which BS refuses an upload
    threads: int = 2  # of the CSP when it opens rows
    draw: str = "keyed"  # "secret": orders and moves from the operating system, as in a deployment

    def __post_init__(self) -> None:
        for field, allowed in CHOICES.items():
            value = getattr(self, field)
            if value not in allowed:
                raise CoveyError(
                    f"algorithm.{field} is {value!r}: choose one of {', '.join(allowed)}{meant(value, allowed)}"
                )
        for field, least in (("alpha", 0), ("every", 0), ("min_size", 2), ("threads", 1), ("buckets", 1), ("noise", 0)):
            if not getattr(self, field) >= least:
                raise CoveyError(f"algorithm.{field} is {getattr(self, field)}: it must be at least {least}")
        if not (0 < self.gamma < float("inf") and self.max_age > 0):
            raise CoveyError("algorithm.gamma and algorithm.max_age must be positive")
        if self.buckets > MOST_BUCKETS:
            raise CoveyError(f"algorithm.buckets is {self.buckets}: a sketch has {MOST_BUCKETS} numbers at most")
        if self.noise and self.mitigation != "sketch":
            raise CoveyError("algorithm.noise is put on sketches: set algorithm.mitigation = 'sketch' as well")

    def deployed(self, encryption: str) -> FedCAPrivacy:
        """Orders and moves from the operating system, and keys of 128-bit security."""
        chosen = self.bits != FedCAPrivacy.bits  # by somebody who knows why
        return replace(self, draw="secret", bits=self.bits if chosen else secure_bits(encryption, self.bits))

    @property
    def min_group(self) -> int:
        """As other algorithms call it."""
        return self.min_size

    def keys(self, setting: Setting) -> dict[str, dict[str, Any]]:
        terms = 1
        if self.mitigation in SUMMING:
            length = setting.start.shape[1] if self.mitigation == "sketch" else 0
            terms = terms_for(setting.encryption, setting.clients, length)
        return issue_keys(setting.encryption, setting.clients, self.bits, terms, self.fast_opening)

    def start(self, setting: Setting) -> BusinessState:
        if not bool(setting.personal.all()):
            raise CoveyError("fedcaprivacy averages whole models per cluster: leave layers.personal at 0")
        return self._business_server(setting, {}).begin()

    def broadcast(self, state: BusinessState, client: int) -> Package:
        return state.packages[state.package_of.get(client, 0)]

    def client(self, me: Client, message: Package) -> Coroutine:
        start = yield from self._model(me, message)
        model = yield Train(start[0], me.plan)
        if self.mitigation == "rearrange":
            model = yield Compute("encrypt", _padded, (me, model, start[0]), on_cpu=True)
        row = yield rowwise(_whole, model)  # where it was trained, of all participants at once
        return (yield Compute("encrypt", _sealed, (me, row), on_cpu=True))

    def aggregate(self, server: Server, state: BusinessState, replies: Iterator[tuple[int, Any]]) -> BusinessState:
        bs = self._business_server(server.setting, server.keys)
        rows, accepted, refused = bs.receive(state, replies, server.round)
        server.note("refused", refused)
        if len(rows) < self.min_size:  # too few to hide among: nobody's model is averaged
            server.note("clustered", 0)
            return bs.forward(state, {}, server.round, accepted)
        names = sorted(rows)
        order = [names[j] for j in self._shuffle(server, len(names))]
        labels = bs.labels(state, order)
        clustered = self.clusters_in(server.round, server.random("coin")) or not labels.any()
        if self.alignment == "scrambled":
            labels = labels[server.random("scramble").permutation(len(labels))]
        averaged = self._exchange(server, bs, [rows[i] for i in order], None if clustered else labels)
        for name, value in {"clustered": int(clustered), "order": order}.items():
            server.note(name, value)
        state, served = bs.adopt(state, order, averaged.memberships, averaged.models, averaged.sizes, clustered)
        return bs.forward(state, served, server.round, accepted)

    def carry_on(self, server: Server, state: BusinessState) -> BusinessState:
        """The same models, signed for this round: participants take those of no other."""
        return self._business_server(server.setting, server.keys).forward(state, {}, server.round, state.accepted)

    def answer(self, server: Server, message: Any) -> CoveredMeans | CoveredSums:
        """The CSP, which meets nobody but BS."""
        self._check_request(server.setting, message)
        device = server.setting.start.device
        csp = CloudProvider(server.keys, self.gamma, self.median, self.min_size, self.threads, device)
        return answer_request(server, csp, message)

    def check_question(self, server: Server, message: Any, past: Sequence[Mapping[str, int]]) -> dict[str, int]:
        """Before anything is opened: what a BS that follows the protocol can ask in this round."""
        self._check_request(server.setting, message)
        return check_question(message, self.clusters_in(server.round, server.random("coin")), self.min_size, past)

    def answers_tell(self, setting: Setting, questions: int, refusals: int) -> float:
        """Bits of the CSP's key; see `exchanges.answers_tell`."""
        rounds = range(1, setting.rounds + 1)
        on_schedule = sum(self.clusters_in(r, servers_draw(setting.seed, r, "coin")) for r in rounds)
        return answers_tell(on_schedule + SPARE, questions, setting.clients, setting.clusters, refusals)

    def read_together(
        self,
        keys: Mapping[str, Mapping[str, Any]],
        setting: Setting,
        memory: dict[str, Any],
        round: int,
        sender: str,
        receiver: str,
        message: Any,
    ) -> list[tuple[str, str, Any]]:
        """What BS and CSP read who collude; no mitigation is between them."""
        return opened_together(keys[CSP]["opening"], setting, memory, round, sender, receiver, message)

    def _check_request(self, setting: Setting, message: Any) -> None:
        buckets = self.buckets if self.mitigation == "sketch" else 0
        check_request(message, setting, buckets, self.mitigation in SUMMING)

    def _exchange(self, server: Server, bs: BusinessServer, rows: list[bytes], labels: Matrix | None) -> Averaged:
        random = self._random(server, "cover")
        if self.mitigation in SUMMING and labels is not None:
            return by_sums(server, bs, rows, settle_memberships(labels, self.min_size), random)
        if self.mitigation == "sketch":
            return by_sums(server, bs, rows, by_sketches(server, bs, rows, self.buckets, self.noise, random), random)
        return by_rows(server, bs, rows, labels, self.mitigation == "rearrange", random)

    def use(self, me: Client, message: Package) -> Coroutine:
        models = yield from self._model(me, message)
        return Predictor(models)

    def clusters_in(self, round: int, random: np.random.Generator) -> bool:
        """Whether rows are clustered anew in this round."""
        if self.every:
            return (round - 1) % self.every == 0
        return round == 1 or bool(random.random() < 1 / (1 + self.alpha * round))

    def _model(self, me: Client, package: Package) -> Generator[Work, Any, Tensor]:
        """[1, d]: the mean of this participant's cluster models, or the common start before it has any."""
        start = me.setting.start
        if package.group < 0:
            return me.setting.one_start()[None]
        me.note("cluster", package.group)
        me.note("membership", [float(k in package.clusters) for k in range(me.setting.clusters)])
        models: Tensor = yield Compute("decrypt", _open_package, (me.keys, package, me.round - 1, start), shared=True)
        return models

    def _business_server(self, setting: Setting, keys: dict[str, Any]) -> BusinessServer:
        length = setting.start.shape[1]
        if keys and self.mitigation == "rearrange":
            length += -length % sealer(keys["csp"]).block  # participants fill up the last block
        return BusinessServer(keys, setting.clusters, length, self.max_age)

    def _shuffle(self, server: Server, n: int) -> list[int]:
        if not self.shuffle:
            return list(range(n))
        return [int(j) for j in permutation(n, self._random(server, "shuffle"))]

    def _random(self, server: Server, purpose: str) -> np.random.Generator | None:
        return server.random(purpose) if self.draw == "keyed" else None


def _padded(me: Client, model: Tensor, start: Tensor) -> Tensor:
    random = me.random("padding") if me.secret is None else None
    return torch.from_numpy(pad_model(me.keys, model.cpu().numpy(), start.cpu().numpy(), random))


def _whole(models: Tensor) -> Tensor:
    whole: Tensor = rounded(models).to(torch.int32)
    return whole


def _sealed(me: Client, row: Tensor) -> Envelope:
    return seal_row(me.keys, me.id, me.round, row.cpu().numpy())


def _open_package(keys: dict[str, Any], package: Package, round: int, like: Tensor) -> Tensor:
    mean = open_package(keys, package, round)[: like.shape[1]]
    return torch.from_numpy(mean.astype(np.float32))[None].to(like.device)
