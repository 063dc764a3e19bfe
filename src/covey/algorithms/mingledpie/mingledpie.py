"""MingledPie: cluster identities hidden among false ones, sums under encryption, models rebuilt by the clients (NDSS 2025).

Every round a client takes the cluster model that fits it best, trains it, and shows a *set* of clusters: its own and false
ones, drawn by fuzzy message detection (`crypto/fmd.py`). It sends its model and the indicator of its own cluster as one sealed
vector. The server, which holds no key, adds each vector into the sum of every cluster that its sender shows and returns the k
sums. Clients open them and solve for the cluster models (`rebuild.py`).

Adversary: the honest-but-curious server, which sees all traffic. Under CKKS and BFV all clients hold the same secret key, and a
server with one client on its side reads everything (attack `coalition`). With `encryption = "threshold"` no key is shared: sums
are opened by `quorum` clients together (`openings.py`), and a server with fewer of them on its side gets the sums and no more. The
price is one more exchange, in which clients that help to open see which sets the others showed.

Where we differ from the paper, besides its slips (see `fmd.py`, `rebuild.py`, `identity_math.py`): a client remembers the set it
showed for each identity, where the paper draws a new one at every change; *shared layers* are averaged exactly, from one more
sum over all clients. In a simulation identity sets are drawn from the run's keyed generators so that it can be repeated; who
knows the seed could undo them, so a deployment sets `draw = "secret"`.

A cluster that nobody chose is not in the sums, and the server cannot tell (it sees no counts), so it cannot help. Every client
remembers the models it rebuilt last and falls back to those, which is exact where all take part in every round. Where clients
are sampled, what one remembers may be old: with `history = h` the server sends the sums of the last h rounds (h times the
download; older ones are opened only if needed) and everyone finds the latest model there.

Reproduce: `covey reproduce mingledpie --table table3`.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from covey import roles
from covey.algorithms import rebuild
from covey.algorithms.contract import Client, Coroutine, Messages, Predictor, Server, Setting, lowest
from covey.algorithms.mingledpie import turns
from covey.algorithms.rebuild import Matrix, Rebuilt
from covey.algorithms.robust.averages import UNDER_SEALS, check_group
from covey.algorithms.sums import openings
from covey.algorithms.sums.openings import Seals
from covey.clustering.isolation import keeps_apart
from covey.config import later
from covey.crypto import fmd
from covey.crypto.identity_math import Reading, effective_rate, pairing
from covey.crypto.key_kinds import Describe, KeyKind
from covey.crypto.openings.threshold import Opening, OpeningAdvice, OpeningQuestion
from covey.crypto.openings.threshold import key_kind as own_key_kind
from covey.crypto.sealing import sealing
from covey.crypto.sealing.sealing import key_kind
from covey.errors import CoveyError, meant
from covey.learn.schedule import transfer
from covey.learn.work import Compute, Losses, Train, Work
from covey.measures import MATRIX, Measure
from covey.messages import LATER, message
from covey.randomness import generator
from covey.strength import Strength

Points = tuple[tuple[bytes, ...], ...]
CHOICES = {
    "reading": ("members", "false"),
    "remember": ("identity", "change", "never"),
    "rebuild": ("counts", "steady", "ideal", "none"),
    "draw": ("keyed", "secret"),
}


@message
@dataclass(frozen=True)
class MingledSums:
    """What the server holds and sends to everyone. Before the first round: nothing, the start is agreed."""

    # per cluster, and one over all clients if layers are shared; each seals [d + k]
    sums: Annotated[list[bytes], roles.SealedSums((roles.Model, roles.Indicator))]
    sizes: Annotated[list[int], roles.GroupSizes]  # |G_j| clients that showed each cluster
    # of the rounds before, newest first; see `history`
    past: Annotated[list[MingledSums], roles.Part] = field(default_factory=list)
    # where clients open sums together
    opening: Annotated[Opening | None, roles.Part] = field(default=None, metadata=LATER)


@message
@dataclass(frozen=True)
class MingledUpdate:
    identities: Annotated[list[int], roles.IdentitySet]  # the set shown
    sealed: Annotated[
        bytes, roles.Sealed((roles.Model, roles.Indicator))
    ]  # [d + k]: the model, then the indicator of the true cluster
    # for each client, where they open together
    boxes: Annotated[list[bytes] | None, roles.Boxes] = field(default=None, metadata=LATER)
    # where clients take turns: the one cluster of the set whose sum this vector goes into
    turn: Annotated[int | None, roles.Turn] = field(default=None, metadata=LATER)

    @property
    def sums(self) -> list[int]:
        """The sums that a client's vector is added to."""
        return self.identities if self.turn is None else [self.turn]

    @property
    def sums_of_each(self) -> list[list[int]]:
        """The same of each of many clients that run as one, or of one client."""
        if self.turn is not None:
            return np.reshape(self.turn, (-1, 1)).tolist()
        return self.identities.tolist() if isinstance(self.identities, np.ndarray) else [self.identities]


FEWER = "more clients per cluster or fewer clusters would help"


@dataclass(frozen=True)
class MingledPie:
    name: ClassVar[str] = "mingledpie"
    label: ClassVar[str] = "MingledPie"
    title: ClassVar[str] = "cluster identities among false ones, encrypted sums, models rebuilt by clients (NDSS 2025)"
    family: ClassVar[str] = "private"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    surveyed: ClassVar[bool] = True
    sealing: ClassVar[str] = "sums"
    REFUSED: ClassVar[Mapping[str, str]] = UNDER_SEALS
    strengths: ClassVar[tuple[Strength, ...]] = (
        Strength("rate", (0.01, 0.125, 0.25, 0.5, 0.75, 0.9), "p", "how likely another cluster joins a shown set"),
        Strength("threshold", (1, 2, 3, 4, 5, 6, 8), "T", "clusters that a shown set has at least"),
    )
    sends: ClassVar[Messages] = (MingledSums,)
    replies: ClassVar[Messages] = (MingledUpdate,)
    consults: ClassVar[Messages] = (OpeningQuestion,)
    advises: ClassVar[Messages] = (OpeningAdvice,)
    key_kinds: ClassVar[Mapping[str, Describe]] = {
        "sealing": key_kind,
        openings.OWN: own_key_kind,
        "identities": lambda addresses, role: KeyKind("addresses of the clusters", secret=False),
    }

    measures: ClassVar[Mapping[str, Measure]] = {
        "cut": openings.CUT,
        "condition": Measure(
            "Condition of the counts",
            "cond(H)",
            "How much rebuilding may amplify errors: 1 is the best there is, and a singular H has none.",
            alarm=100,
            warning=f"rebuilding was ill-conditioned: cond(H) up to {{}}; {FEWER}",
        ),
        "noise_gain": Measure(
            "Noise gain",
            "gain",
            "By how much rebuilding magnifies what the members of a cluster differ by; a plain average has 1.",
            alarm=3,
            warning="rebuilding magnified what members of a cluster differ by up to {} times, and accuracy may fall with time; "
            f'{FEWER}, and so may algorithm.turns = true or algorithm.rebuild = "steady"',
        ),
        "turn_gain": Measure(
            "Noise of turns",
            "gain",
            "By how much a mean of those members whose turn it is is noisier than one over all members, at worst.",
        ),
        "alone": Measure(
            "Means of one client",
            "share",
            "A cluster of which one member alone counted: who holds the key reads that client's model.",
            alarm=0.5,
            warning="in some round a mean was of one client's model alone, which every client can read; larger clusters or "
            "smaller sets (algorithm.rate, algorithm.threshold) would help, or algorithm = routing",
        ),
        "withheld": Measure(
            "Rounds withheld",
            "share",
            "Sums that would have given away too few clients are not sent.",
            alarm=0.5,
            warning="in some round sums would have given single clients away and were withheld, its models stayed as they were; "
            "more clients or fewer clusters would help",
        ),
        "unopened": openings.UNOPENED,
        "mingled": Measure(
            "Mingled membership counts",
            words="Row a, column b: clients that showed set a and truly chose b, in the last round. "
            "A strong diagonal rebuilds well.",
            shown=MATRIX,
            axes=("set", "true"),
        ),
    }

    rate: float = 0.5  # p: probability that another cluster joins a shown set
    threshold: int = 2  # T: a shown set has at least …
    reading: str = "members"  # … T members (Algorithm 1), or T "false" ones (Eq. 9, Table II)
    remember: str = "identity"  # one set per identity; the paper: new at every "change"; "never": new every round
    rebuild: str = (
        "counts"  # "steady": drawn towards the last models; ablations: "ideal" expected shares, "none" mingled means
    )
    history: int = 1  # rounds of sums that are sent: more where clients are sampled; see above
    bound: float = 16.0  # largest weight that can be sealed
    min_group: int = (
        1  # fewest clients that sums may give away together; the server withholds others, clients refuse them
    )
    draw: str = "keyed"  # "secret": sets from the operating system, as in a deployment
    quorum: int = later(0)  # clients that must help to open a sum, with encryption = "threshold"; 0: more than half
    turns: bool = later(False)  # a vector goes into one sum of the shown set a round, and counts in its own: `turns.py`

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise CoveyError(
                    f"algorithm.{name} is {value!r}: choose one of {', '.join(allowed)}{meant(value, allowed)}"
                )
        fmd.key_length(self.rate)  # refuses a rate that is none
        check_group(self.min_group)
        openings.check_quorum(self.quorum)
        if self.history < 1:
            raise CoveyError(f"algorithm.history is {self.history}: the sums of at least one round must be sent")
        if self.turns and self.rebuild not in ("counts", "steady"):
            raise CoveyError(
                f"algorithm.rebuild is {self.rebuild!r} with algorithm.turns: a vector is then in one sum alone, and nothing is "
                'mingled that this could leave in or take for expected; choose "counts" or "steady"'
            )

    @property
    def rounds_sent(self) -> int:
        return self.history

    def deployed(self, encryption: str) -> MingledPie:
        return replace(self, draw="secret")

    def keys(self, setting: Setting, publics: Mapping[int, bytes] | None = None) -> dict[str, dict[str, Any]]:
        """Clients: the key of the sums. Server: public parameters only. Cluster addresses are public; see `fmd.py`."""
        if self.turns and openings.is_together(setting.encryption):
            raise CoveyError(
                f"algorithm.turns does not go with encryption = {setting.encryption!r}: who helps to open sums is told who is in "
                "which, with turns these are others in every round, and after a few the counts name every client's cluster; take "
                "an encryption whose key clients share, or leave turns out"
            )
        held, server = openings.issue(setting, self.bound, self.quorum, publics)
        addresses = fmd.generate_keys(setting.clusters, self.rate, generator(setting.seed, "cluster keys").bytes)
        fmd.check_threshold(addresses, self.threshold, _reading(self.reading))
        shown = self.threshold + (self.reading == "false")
        if self.rebuild in ("counts", "steady") and not self.turns and shown >= setting.clusters > 1:
            raise CoveyError(
                f"every client would show all {setting.clusters} clusters (algorithm.threshold is {self.threshold}), so the sums "
                "would all be equal and no model could be rebuilt: lower algorithm.threshold, take more clusters, or let clients "
                "take turns (algorithm.turns = true)"
            )
        public = {
            "rate": addresses.rate,
            "addresses": addresses.addresses,
            "publics": addresses.publics,
            "threshold": self.threshold,
            "reading": self.reading,
        }
        return {
            "clients": {**held, "identities": public},
            "server": {"sealing": server, "identities": public},
        }

    def check_keys(self, keys: Mapping[str, Any], client: int, encryption: str) -> None:
        openings.check_held(keys, client, encryption, self.bound, self.quorum)

    def start(self, setting: Setting) -> MingledSums:
        return MingledSums([], [0] * setting.clusters)

    def broadcast(self, state: MingledSums, client: int) -> MingledSums:
        return state

    def client(self, me: Client, message: MingledSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)  # [k]
        choice = lowest(losses)
        me.note("cluster", choice)
        model = openings.sealable(me, (yield Train(models[choice], me.plan)), lambda: models[choice])
        shown, turn, groups = yield Compute("identity", self._identities, (me, choice))
        me.note("groups", groups)
        vector = model if turn is None else turns.contribution(model, turn, choice, self._limit(me.setting))
        sealed, boxes = yield from sealed_with_indicator(me, vector, choice)
        return MingledUpdate(shown, sealed, boxes, turn)

    def aggregate(self, server: Server, state: MingledSums, replies: Iterator[tuple[int, Any]]) -> MingledSums:
        k, d = server.setting.start.shape
        everyone = [] if bool(server.setting.personal.all()) else [k]
        mixer = sealing.mixer(server.keys["sealing"], k + len(everyone), d + k)
        members: list[list[int]] = []  # the sums that each client is in
        boxes: dict[int, Sequence[bytes]] = {}
        for i, reply in replies:
            if (reply.turn is None) is self.turns or not openings.keep_boxes(server, boxes, i, reply.boxes):
                continue
            shown = [[*sums, *everyone] for sums in reply.sums_of_each]
            sealing.add(mixer, reply.sealed, shown)
            members += shown
        groups = np.array([[j in shown for shown in members] for j in range(k + len(everyone))], dtype=bool)  # [., n]
        sizes = groups[:k].sum(1).tolist()
        if not any(sizes) or self._withheld(server, groups):
            return state
        opening = None
        if openings.is_together(server.setting.encryption):
            opening = openings.open_together(server, groups, boxes, [0] * len(groups))
            if opening is None:
                return state
        past = [replace(state, past=[]), *state.past] if state.sums else []
        return MingledSums(sealing.sums_of(mixer), sizes, past[: self.history - 1], opening)

    def reticent(self, setting: Setting) -> bool:
        return openings.is_together(setting.encryption)

    def advise(self, me: Client, question: OpeningQuestion) -> Coroutine:
        """Where clients open sums together: this one's part."""
        return (yield from openings.help_open(me, question, openings.least_opened(me.setting, self.min_group)))

    def _withheld(self, server: Server, groups: NDArray[np.bool_]) -> bool:
        """Whether these sums would give away fewer clients than agreed: whoever shows what, the server sees."""
        least = openings.least_opened(server.setting, self.min_group)
        if least == 1:
            return False
        withheld = not keeps_apart(groups, least)
        server.note("withheld", float(withheld))
        return withheld

    def use(self, me: Client, message: MingledSums) -> Coroutine:
        models = yield from self._models(me, message)
        losses = yield Losses(models)
        return Predictor(models, index=lowest(losses))

    def _models(self, me: Client, message: MingledSums) -> Generator[Work, Any, Tensor]:
        """Decrypting and rebuilding is the same for all clients of a host; what they remember is their own."""
        if not message.sums:
            return me.setting.start
        self._refuse_small(message)
        opened, counts = yield Compute("decrypt", _opened, (me, message), shared=True)
        rebuilt = yield Compute("rebuild", self._rebuild_all, (me, message, opened, counts), shared=True)
        for name, value in (yield Compute("measure", self._measured, (counts,), shared=True)).items():
            me.note(name, value)
        if self.rebuild == "steady":
            mark = yield Compute("mark", _mark, (message,), shared=True)
            in_sums = self._in_sums(counts)
            drawn = self._drawn(me.setting, opened[: me.setting.clusters], in_sums)
            rebuilt = yield from rebuild.steadied(me, mark, rebuilt, in_sums, drawn)
        return (yield from rebuild.recall(me, rebuilt))

    def _measured(self, counts: Matrix) -> dict[str, Any]:
        """What clients note of the counts that they have opened."""
        noted: dict[str, Any] = {"condition": rebuild.condition(self._in_sums(counts))}
        if self.turns:
            noted["turn_gain"] = turns.noise_gain(counts)
            noted["alone"] = float((np.diag(counts) == 1).any())
        else:
            noted["noise_gain"] = rebuild.noise_gain(counts, self._pairing(len(counts)))
        return {**noted, "picture:mingled": counts.tolist()}

    def _pairing(self, clusters: int) -> float:
        return pairing(clusters, self.rate, self.threshold, _reading(self.reading))

    def _drawn(self, setting: Setting, opened: Tensor, in_sums: Matrix) -> Callable[[Matrix, int], Matrix]:
        """From the last models to the next ones that these sums let expect."""

        def drawn(last: Matrix, seen: int) -> Matrix:
            sums = opened.cpu().numpy().astype(np.float64)
            if self.turns:
                rounds = self._rounds_of_turns(setting.clusters)
                return turns.approach(in_sums, sums, self.min_group, rounds, last, seen)
            together = self._pairing(setting.clusters)
            return rebuild.steady(in_sums, sums, last, together, setting.personal.cpu().numpy())

        return drawn

    def _rounds_of_turns(self, clusters: int) -> float:
        """How many rounds turns take to go round, expected: the members of a set."""
        return 1.0 + (clusters - 1) * effective_rate(clusters, self.rate, self.threshold, _reading(self.reading))

    def _refuse_small(self, message: MingledSums) -> None:
        """A server that does not keep to what was agreed gets nothing more. Sizes that it lies about do not fit the counts."""
        least = min((size for one in (message, *message.past) for size in one.sizes if size), default=self.min_group)
        if least < self.min_group:
            raise CoveyError(
                f"the server sent the sum of {least} clients' models, algorithm.min_group is {self.min_group}: this is not "
                "opened, since others could tell a single client's model from it; agree on fewer clusters or find more clients"
            )

    def _rebuild_all(self, me: Client, message: MingledSums, opened: Tensor, counts: Matrix) -> Rebuilt:
        """From the newest sums, and what they do not determine from the ones before."""
        seals, k = Seals.of(me), me.setting.clusters
        older = (self._rebuild(me.setting, one, *open_sums(seals, one, k)) for one in message.past)
        return rebuild.fill_gaps(self._rebuild(me.setting, message, opened, counts), older, me.setting)

    def _rebuild(self, setting: Setting, message: MingledSums, opened: Tensor, counts: Matrix) -> Rebuilt:
        k = setting.clusters
        sums, sizes = opened[:k], np.array(message.sizes)
        if self.rebuild == "none":
            models, known = rebuild.mingled_means(sums, sizes)
        elif self.rebuild == "ideal":
            models, known = rebuild.ideal(
                sums, sizes, effective_rate(k, self.rate, self.threshold, _reading(self.reading))
            )
        else:
            models, known = rebuild.solve(self._in_sums(counts), sums)
            if self.turns:  # how many count the server does not see: a mean of fewer than agreed is not used
                known = [there and bool(n >= self.min_group) for there, n in zip(known, np.diag(counts))]
        # The sum over all clients counts each of them once, and so does the diagonal of H: everyone shows its own cluster. With
        # turns that may be few or nobody, and then shared layers stay as they were, like clusters.
        too_few = self.turns and counts.trace() < self.min_group
        mean = opened[k].double() / counts.trace() if len(opened) > k and not too_few else None
        return rebuild.rebuild_models(models, known, setting, mean)

    def _in_sums(self, counts: Matrix) -> Matrix:
        """Whose models are in which sum, of the opened counts."""
        return turns.contributors(counts) if self.turns else counts

    def _identities(self, me: Client, choice: int) -> tuple[list[int], int | None, list[int]]:
        """The set to show, whose turn it is where clients take turns, and the sums that its model is then in."""
        shown = self._show(me, choice)
        if not self.turns:
            return shown, None, shown
        turn = self._turn(me, shown)
        return shown, turn, [turn] * (turn == choice)

    def _turn(self, me: Client, shown: list[int]) -> int:
        """The cluster of the shown set whose turn it is, and what to remember of the set's order."""
        draw = secrets.token_bytes if self.draw == "secret" else me.random("turn").bytes
        turn, me.memory["turns"] = turns.take(shown, me.memory.get("turns", []), draw)
        return turn

    def _limit(self, setting: Setting) -> float:
        """Of weights that can be sealed."""
        return math.inf if setting.encryption == "none" else self.bound

    def _show(self, me: Client, choice: int) -> list[int]:
        """The set to show, and what to remember of it."""
        kept = me.memory.get("sets")
        changed = me.memory.get("identity") != choice
        if kept is None or self.remember == "never" or (self.remember == "change" and changed):
            kept = fmd.no_memory(me.setting.clusters)
        # A set that is remembered needs no random numbers: making a generator takes longer than all the rest.
        drawing = self.draw == "keyed" and not kept[choice]
        draw = me.random("identity").bytes if drawing else secrets.token_bytes
        public = me.keys["identities"]
        cluster_keys = _cluster_keys(public["rate"], public["addresses"], public["publics"])
        shown, kept = fmd.shown_set(cluster_keys, choice, self.threshold, kept, _reading(self.reading), draw)
        me.memory |= {"sets": kept, "identity": choice}
        return shown


def sealed_with_indicator(me: Client, model: Tensor, choice: Any) -> Coroutine:
    """The sealed vector and its boxes; of clients that run as one, which hide nothing and share none, a vector for each."""
    clusters = me.setting.clusters
    if model.dim() == 2:
        return sealing.seal_rows(me.keys["sealing"], with_indicator(model, choice, clusters)), None
    given = (Seals.of(me), model, choice, clusters)
    return (yield Compute("encrypt", seal_with_indicator, given, on_cpu=True))


def seal_with_indicator(seals: Seals, model: Tensor, choice: int, clusters: int) -> tuple[bytes, list[bytes] | None]:
    """The model and the indicator of its cluster, sealed as one vector [d + k], and what goes with it to other clients."""
    (sealed,), boxes = seals.seal([with_indicator(model, choice, clusters).cpu().numpy()])
    return sealed, boxes


def with_indicator(model: Tensor, choice: Any, clusters: int) -> Tensor:
    """[d + k]; of models [n, d] and choices [n] rows."""
    indicator = one_hot(torch.as_tensor(choice), clusters)
    return torch.cat([model, transfer.there(indicator.to(model.dtype), model.device)], dim=-1)


def _opened(me: Client, message: MingledSums) -> tuple[Tensor, Matrix]:
    return open_sums(Seals.of(me), message, me.setting.clusters)


def open_sums(seals: Seals, message: MingledSums, clusters: int) -> tuple[Tensor, Matrix]:
    """(the sums [k or k + 1, d], the counts H [k, k]); refuses counts that do not add up to the groups' sizes."""
    opened = seals.open_there(message.sums, message.opening)  # [., d + k]
    counts = sealing.whole_counts(opened[:clusters, -clusters:].cpu().numpy()).astype(np.float64)
    if (counts.sum(1) != message.sizes).any():
        raise CoveyError(
            f"the opened counts add up to {counts.sum(1).astype(int).tolist()} clients per cluster, the server announced "
            f"{message.sizes}: a contribution was lost, doubled or altered on the way; run the round again"
        )
    return opened[:, :-clusters], counts


def _mark(message: MingledSums) -> bytes:
    """A name for these sums."""
    digest = hashlib.blake2b(digest_size=16)
    for one in message.sums:
        digest.update(one)
    return digest.digest()


def _reading(word: str) -> Reading:
    return "false" if word == "false" else "members"


@lru_cache(maxsize=4)
def _cluster_keys(rate: float, addresses: Points, publics: Points) -> fmd.ClusterKeys:
    """What the server published, after a client's check that keys and addresses belong together: once per host."""
    keys = fmd.ClusterKeys(rate, addresses, publics)
    fmd.check_keys(keys)
    return keys
