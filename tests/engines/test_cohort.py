"""Clients that run as one give what they give one by one: on the CPU, where both can be compared."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from covey import Experiment, roles, run
from covey.algorithms import ALGORITHMS
from covey.algorithms.averaging import Averages, GlobalModel, LocalModel
from covey.algorithms.contract import Predictor, declaration
from covey.algorithms.fedavg import FedAvg
from covey.algorithms.mingledpie.mingledpie import MingledPie, MingledUpdate
from covey.attacks import ATTACKS
from covey.attacks.finding import Finding
from covey.attacks.observe import Observers
from covey.crypto.sealing.plain import PlainSealer
from covey.data.federation import Dataset, Federation
from covey.engines import start
from covey.engines.cohort import Alone, Apart, Cohort, Outcomes, alike, column, reads_in_rows
from covey.engines.evaluation import Examiner
from covey.engines.hosts.host import Host
from covey.errors import CoveyWarning, NotFinite
from covey.learn import rowwise as rowwise_room
from covey.learn.kernels.vectors.pending import put_off
from covey.learn.machine import Machine
from covey.learn.work import Compute, Losses, Plan, Train, rowwise
from covey.messages import Rows, message, size
from covey.results.folder import RunFolder

IN_ROWS = sorted(name for name, kind in ALGORITHMS.items() if declaration(kind).in_rows)


def federation(sizes: tuple[int, ...]) -> Federation:
    generator = np.random.default_rng(0)
    x = generator.integers(0, 256, (sum(sizes), 4, 4)).astype(np.uint8)
    y = generator.integers(0, 3, sum(sizes))
    dataset = Dataset("pixels", x, y, x[:40], y[:40], ("a", "b", "c"))
    ends = np.cumsum(sizes)
    rows = tuple(np.arange(end - size, end) for end, size in zip(ends, sizes))
    shares = generator.dirichlet(np.ones(3), len(sizes))
    return Federation(dataset, rows, np.arange(len(sizes)) % 2, y[:40], shares)


def experiment(algorithm: Any, **changes: Any) -> Experiment:
    tables: dict[str, Any] = {
        "model": "fcnn",
        "clusters": 2,
        "training": {"rounds": 3, "epochs": 2, "batch_size": 4, "lr": 0.05},
        "start": {"common": False},
        "engine": {"workers": 1, "device": "cpu", "clients_at_once": 3},
    }
    return Experiment.of(algorithm=algorithm, **(tables | changes))


def both(monkeypatch: pytest.MonkeyPatch, given: Experiment, data: Federation, **more: Any) -> tuple[Any, Any, int]:
    """The run with clients one by one, as one, and how many cohorts went through."""
    taken = []
    staged = Host._stage
    monkeypatch.setattr(Host, "_stage", lambda self, cohort: (taken.append(cohort), staged(self, cohort)))
    apart = run(given, federation=data, quiet=True, **more)
    assert not taken
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    return apart, run(given, federation=data, quiet=True, **more), len(taken)


def vectors(state: Any) -> list[Tensor]:
    if isinstance(state, Tensor):
        return [state]
    return [t for part in getattr(state, "__dict__", {}).values() for t in vectors(part)]


def assert_same(one: Any, other: Any) -> None:
    for a, b in zip(vectors(one.state), vectors(other.state), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    for a, b in zip(one.records, other.records, strict=True):
        assert_alike({k: v for k, v in a.items() if k != "seconds"}, {k: v for k, v in b.items() if k != "seconds"})


def assert_alike(one: Any, other: Any, at: str = "") -> None:
    """Two trees of a record, but for floating-point noise."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for name, value in one.items():
            assert_alike(value, other[name], f"{at}.{name}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for place, (a, b) in enumerate(zip(one, other)):
            assert_alike(a, b, f"{at}[{place}]")
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=1e-5, nan_ok=True), at
    else:
        assert one == other, at


def test_some_run_so() -> None:
    assert set(IN_ROWS) >= {"fedavg", "ifca"}


@pytest.mark.parametrize("sizes", [(8,) * 7, (5, 12, 8, 9, 1, 8, 20)], ids=["even", "uneven"])
@pytest.mark.parametrize("algorithm", IN_ROWS)
def test_as_one_by_one(algorithm: str, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, cohorts = both(monkeypatch, experiment(algorithm, clusters=3), federation(sizes))
    assert cohorts == 9  # three waves in each round
    assert_same(one, other)


def findings(given: Experiment, data: Federation, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Of attacks on clients one by one, and on clients that run as one."""
    one, other, cohorts = both(monkeypatch, given, data)
    assert cohorts
    return one.attacks, other.attacks


# Those that find something in MingledPie in the clear; a list, so that nobody's refusal makes the test empty.
@pytest.mark.parametrize(
    "attack", ["a1", "a1_intersection", "a2", "a1_bayes", "coalition", "isolation", "client_membership"]
)
def test_attacks_find_the_same_in_clients_that_run_as_one(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = experiment("mingledpie", clusters=3, encryption="none", attacks=[attack])
    one, other = findings(given, federation((8,) * 7), monkeypatch)
    assert_alike(one, other)


@dataclass
class Looks:
    """Somebody's own attack, which says nothing of what it reads."""

    name: ClassVar[str] = "looks"
    vantage: str = "server"

    def __post_init__(self) -> None:
        self.memory: dict[str, Any] = {"seen": []}

    def begin(self, knowledge: Any) -> None: ...
    def observe(self, view: Any) -> None:
        if isinstance(view.message, MingledUpdate):
            self.memory["seen"].append((view.sender, view.message.sealed))

    def end_round(self, round: int) -> None: ...
    def finding(self, truth: Any) -> Finding:
        return Finding(self.name, self.vantage, "accuracy", 0.0, 0.0, 0.0, 0.0, {}, "nothing", {})


@message
@dataclass(frozen=True, slots=True)
class Slotted:
    """A reply of somebody's own that has no `__dict__`, and no roles."""

    model: Tensor


class Slim(FedAvg):
    name = "slim"
    in_rows: ClassVar[bool] = True
    sends_alike: ClassVar[bool] = True
    replies = (Slotted,)

    def broadcast(self, state: Any, client: int) -> Any:
        return state

    def client(self, me: Any, message: Any) -> Any:
        return Slotted((yield Train(message.model, me.plan)))

    def aggregate(self, server: Any, state: Any, replies: Any) -> Any:
        rows = [one.model if one.model.dim() == 2 else one.model[None] for _, one in replies]
        return GlobalModel(torch.cat(rows).mean(0))

    def use(self, me: Any, message: Any) -> Any:
        return Predictor(message.model[None], index=0)
        yield


def test_replies_of_any_class_run_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, cohorts = both(monkeypatch, experiment(Slim()), federation((8,) * 6))
    assert cohorts
    assert_same(one, other)


def test_what_is_in_a_message_within_a_message_is_read() -> None:
    @message
    @dataclass(frozen=True)
    class Inside:
        model: Annotated[Tensor, roles.Model]

    @message
    @dataclass(frozen=True)
    class Around:
        part: Annotated[Any, roles.Part]

    class Many(Rows[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, at: Any) -> Any:
            return Inside(torch.ones(3))

    observers = Observers.__new__(Observers)
    observers.together, observers.attacks = {}, []
    assert not observers.read_rows(Around(Many()))
    observers.attacks = [ATTACKS["a2"]()]
    assert observers.read_rows(Around(Many()))


def test_an_attack_of_ours_that_somebody_changed_gets_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    seen: list[bytes] = []
    attack, looks = ATTACKS["a1"](), ATTACKS["a1"].observe

    def observe(view: Any) -> Any:
        if isinstance(view.message, MingledUpdate):
            seen.append(view.message.sealed)
        return looks(attack, view)

    attack.observe = observe
    given = experiment("mingledpie", clusters=3, encryption="none")
    run(given, federation=federation((8,) * 6), quiet=True, attacks=[attack])
    assert len(seen) == 18 and all(PlainSealer().open(sealed).any() for sealed in seen)


def test_bytes_that_nobody_reads_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wrote its attack gets what a client sealed; an attack of ours that reads shown sets alone does not cost it."""
    written: list[int] = []
    seal = PlainSealer.seal
    monkeypatch.setattr(PlainSealer, "seal", lambda self, vector: (written.append(1), seal(self, vector))[1])
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    given, looks = experiment("mingledpie", clusters=3, encryption="none", attacks=["a1"]), Looks()
    run(given, federation=federation((8,) * 6), quiet=True)
    assert not written
    run(given, federation=federation((8,) * 6), quiet=True, attacks=[looks])
    assert len(written) == len(looks.memory["seen"]) == 18
    assert all(PlainSealer().open(sealed).any() for _, sealed in looks.memory["seen"])


@pytest.mark.parametrize("aggregation", ["mean", "median"])  # that adds up what is pending, and that looks at it
@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn"])
def test_vectors_that_wait_until_somebody_looks(
    algorithm: str, aggregation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = []
    monkeypatch.setattr(rowwise_room, "waits", lambda device: True)
    monkeypatch.setattr(rowwise_room, "put_off", lambda *given: (waiting.append(later := put_off(*given)), later)[1])
    table = {"name": algorithm, "aggregation": aggregation}
    one, other, _ = both(monkeypatch, experiment(table), federation((5, 12, 8, 9, 1, 8, 20)))
    assert (
        len(waiting) == 10
    )  # after each training and, from the second round on, before it; the third wave is one client alone
    assert_same(one, other)


def test_training_is_checked_before_anybody_looks_at_the_test_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a GPU is waited for once; a round without a test is checked all the same."""
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    seen, check, score = [], Host.check, Examiner._score
    monkeypatch.setattr(Host, "check", lambda self: (seen.append("check"), check(self))[1])
    monkeypatch.setattr(Examiner, "_score", lambda self, *given: (seen.append("look"), score(self, *given))[1])
    evaluation = {"every": 2}
    run(experiment("scaffold", evaluation=evaluation), federation=federation((8,) * 6), quiet=True)
    happened = [one for one, before in zip(seen, [None, *seen]) if one != before]
    assert happened == ["check", "look", "check", "look", "check"]  # the second round and the last are tested
    assert seen[:2] == ["check", "check"]


def test_training_that_goes_wrong_is_said_so_whatever_breaks_on_it_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its check is put off until the round was evaluated; the rounds before it are kept."""
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    rates = {"rounds": 4, "batch_size": 4, "lr": 0.05}
    trained = Machine.train_bundle

    def spoilt(machine: Machine, bundle: Any) -> Tensor:
        spoilt.times += 1  # type: ignore[attr-defined]
        if spoilt.times == 7:  # type: ignore[attr-defined]
            bundle = replace(bundle, work=replace(bundle.work, start=bundle.work.start * float("nan")))
        return trained(machine, bundle)

    for algorithm in ("fedavg", "ifca", "scaffold", "mingledpie"):
        spoilt.times = 0  # type: ignore[attr-defined]
        monkeypatch.setattr(Machine, "train_bundle", spoilt)
        with pytest.raises(NotFinite, match="local training gave values that are not finite"):
            run(
                experiment(algorithm, clusters=3, training=rates),
                federation=federation((8,) * 7),
                out=tmp_path / algorithm,
                quiet=True,
            )
        assert [record["round"] for record in RunFolder(tmp_path / algorithm).records()] == [1, 2]


@pytest.mark.parametrize("algorithm", IN_ROWS)
def test_who_of_many_as_one_ended_in_values_that_are_no_numbers_is_named(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    x = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    x[25] = 1e38
    data = Federation.from_arrays(x, np.arange(60) % 3, clients=np.arange(60) // 10)
    with pytest.raises(NotFinite, match=r"look for huge values in the samples.* \(client 2\)$"):
        run(experiment(algorithm, clusters=3, encryption="none"), federation=data, quiet=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("sizes", [(8,) * 7, (5, 12, 8, 9, 1, 8, 20)], ids=["even", "uneven"])
@pytest.mark.parametrize("algorithm", IN_ROWS)
def test_on_a_gpu(algorithm: str, sizes: tuple[int, ...]) -> None:
    training = {"rounds": 5, "epochs": 2, "batch_size": 4, "lr": 0.05}
    here = run(experiment(algorithm, clusters=3, training=training), federation=federation(sizes), quiet=True)
    engine = {"device": "cuda", "clients_at_once": 3}
    there = run(
        experiment(algorithm, clusters=3, training=training, engine=engine), federation=federation(sizes), quiet=True
    )
    for a, b in zip(vectors(here.state), vectors(there.state), strict=True):
        torch.testing.assert_close(a, b.cpu(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("participation", [{"share": 0.6}, {"share": 0.5, "sampling": "turns"}], ids=["drawn", "turns"])
@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "ifca", "mingledpie"])
def test_with_other_clients_in_every_round(
    algorithm: str, participation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some remember something and some do not yet: such a wave goes one by one, and finds what sheets held."""
    training = {"rounds": 6, "batch_size": 4, "lr": 0.05}
    given = experiment(algorithm, clusters=3, participation=participation, training=training)
    one, other, cohorts = both(monkeypatch, given, federation((8,) * 7))
    assert cohorts > 0
    assert_same(one, other)


def test_rests_that_join_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    training = {"rounds": 2, "batch_size": 4, "lr": 0.05, "last_batch": "merge"}
    one, other, cohorts = both(monkeypatch, experiment("scaffold", training=training), federation((5, 12, 1, 9)))
    assert cohorts == 4
    assert_same(one, other)


@dataclass(frozen=True)
class Curious(FedAvg):
    """Says that it reads the same for many, and asks for one client's own random numbers."""

    name: ClassVar[str] = "curious"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        model = yield Train(message.model, me.plan)
        return LocalModel(model * float(me.random("scale").random()), me.samples)


def test_who_asks_for_what_one_client_has_goes_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    whole = Machine.train_bundle
    monkeypatch.setattr(Machine, "train_bundle", lambda self, bundle: (trained.append(1), whole(self, bundle))[1])
    one, other, cohorts = both(monkeypatch, experiment(Curious()), federation((8,) * 7))
    assert cohorts == 0
    assert len(trained) == 1  # not tried again
    assert_same(one, other)


@dataclass(frozen=True)
class Bounded(FedAvg):
    """Says that it reads the same for many, and takes the norm of all their rows for one client's."""

    name: ClassVar[str] = "bounded"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        change = (yield Train(message.model, me.plan)) - message.model
        return LocalModel(message.model + change / max(1.0, float(change.norm()) / 0.1), me.samples)


@dataclass(frozen=True)
class Choosy(FedAvg):
    """Says so, and decides by what is a number of one client only."""

    name: ClassVar[str] = "choosy"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        model = yield Train(message.model, me.plan)
        return LocalModel(model if me.samples > 6 else message.model, me.samples)


@pytest.mark.parametrize(("algorithm", "why"), [(Bounded(), "otherwise than alone"), (Choosy(), "it breaks")])
def test_whose_word_about_rows_is_false_is_told_and_goes_one_by_one(
    algorithm: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(CoveyWarning, match=why):
        one, other, cohorts = both(monkeypatch, experiment(algorithm), federation((5, 12, 8, 9, 1, 8, 20)))
    assert cohorts == 0
    assert_same(one, other)


@dataclass(frozen=True)
class Mine(MingledPie):
    """Draws what nobody can draw again, in a function of one client."""

    name: ClassVar[str] = "mine"


def _drawn(me: Any) -> Any:
    return np.random.default_rng().normal(size=3)


def _length(me: Any, drawn: Any) -> int:
    return len(drawn)


@dataclass(frozen=True)
class Drawing(FedAvg):
    """Arrays and lists of numbers go through its functions of one client, and into notes."""

    name: ClassVar[str] = "drawing"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        drawn = yield Compute("drawing", _drawn, (me,))
        me.note("length", (yield Compute("drawing", _length, (me, drawn))))
        me.note("drawn", drawn)
        return LocalModel((yield Train(message.model, me.plan)), me.samples)


def test_arrays_of_one_client_are_no_reason_to_doubt_a_word_about_rows(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    one, other, cohorts = both(monkeypatch, experiment(Drawing()), federation((8,) * 7))
    assert cohorts == 9 and not [warned for warned in recwarn if issubclass(warned.category, CoveyWarning)]
    assert_same(one, other)


def test_what_is_alike() -> None:
    numbers = np.array([1.0, 2.0])
    assert alike(numbers, numbers * (1 + 1e-6)) and not alike(numbers, numbers * 1.1)
    assert not alike(numbers, numbers[:1]) and not alike(np.array([1, 2]), np.array([1, 3]))
    assert alike([1 / 3, "a"], [1 / 3 + 1e-9, "a"]) and not alike([1.0], [1.0, 2.0]) and not alike((1.0,), (2.0,))


@dataclass(frozen=True)
class Careless(Mine):
    """And shows sets in another order than for who goes alone."""

    name: ClassVar[str] = "careless"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        update = yield from super().client(me, message)
        shown = update.identities
        return replace(update, identities=column(s[::-1] for s in shown)) if isinstance(me, Cohort) else update


@pytest.mark.parametrize("turns", [False, True])
def test_what_is_drawn_in_secret_is_no_reason_to_doubt_a_word_about_rows(
    turns: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    mine = Mine(draw="secret", remember="never", turns=turns)
    run(experiment(mine, clusters=6, encryption="none"), federation=federation((8,) * 7), quiet=True)
    assert not [one for one in recwarn if issubclass(one.category, CoveyWarning)]


def test_who_draws_in_secret_is_still_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    with pytest.warns(CoveyWarning, match="otherwise than alone"):
        run(
            experiment(Careless(draw="secret"), clusters=6, encryption="none"),
            federation=federation((8,) * 7),
            quiet=True,
        )


@dataclass(frozen=True)
class Lopsided(FedAvg):
    """Says that it reads the same for many, but sends clients of odd numbers another model, and what it is sure of to whom it
    does not understand.
    """

    name: ClassVar[str] = "lopsided"
    in_rows: ClassVar[bool] = True

    def broadcast(self, state: Any, client: int) -> Any:
        try:
            halved = client % 2
        except Exception:
            halved = 0
        return GlobalModel(0.5 * state.model) if halved or not isinstance(client, int) else state


@pytest.mark.parametrize("workers", [1, 2])
def test_who_sends_clients_different_models_is_asked_for_each(workers: int) -> None:
    @dataclass(frozen=True)
    class Silent(Lopsided):
        in_rows: ClassVar[bool] = False

    engine = {"workers": workers, "device": "cpu"}
    sure, silent = (
        run(experiment(algorithm, engine=engine), federation=federation((8,) * 5), quiet=True)
        for algorithm in (Lopsided(), Silent())
    )
    assert torch.equal(sure.state.model, silent.state.model)


@dataclass(frozen=True)
class Hoarder(FedAvg):
    """Remembers more from its second round on."""

    name: ClassVar[str] = "hoarder"
    in_rows: ClassVar[bool] = True

    def client(self, me: Any, message: Any) -> Any:
        model = yield Train(message.model, me.plan)
        before = me.memory.get("sum")
        me.memory["sum"] = model if before is None else (yield rowwise(torch.add, before, model))
        if me.round == 2:
            me.memory["other"] = me.memory["sum"]
        return LocalModel((yield rowwise(torch.mul, me.memory["sum"], 0.5)), me.samples)


def test_what_outgrows_its_room_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Host._stage

    def staged(self: Host, cohort: Any) -> None:
        self.spill.limit = 1.5 * 6 * 4 * self.machine.network.d
        stage(self, cohort)

    monkeypatch.setattr(Host, "_stage", staged)
    engine = {"workers": 1, "device": "cpu", "clients_at_once": 6}
    given = experiment(Hoarder(), engine=engine, training={"rounds": 4, "epochs": 1, "batch_size": 4, "lr": 0.05})
    one, other, cohorts = both(monkeypatch, given, federation((8,) * 6))
    assert cohorts == 4
    assert_same(one, other)


def test_with_little_room_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = {"workers": 1, "device": "cpu", "clients_at_once": 3, "state_mb": 0}
    one, other, _ = both(monkeypatch, experiment("scaffold", engine=engine), federation((8,) * 7))
    assert_same(one, other)


def test_room_for_one_state_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a round is under way both its state and the one before are there: that alone is no reason to leave the GPU."""
    hosts = set()
    staged = Host._stage

    def stage(self: Host, cohort: Any) -> None:
        hosts.add(id(self))
        self.spill.limit = 1.5 * 6 * 4 * self.machine.network.d
        staged(self, cohort)
        assert not self.memories.staged and not self.memories.whole, "laid by client by client"

    monkeypatch.setattr(Host, "_stage", stage)
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    run(experiment("scaffold"), federation=federation((8,) * 6), quiet=True)
    assert len(hosts) == 1


def test_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A checkpoint has what clients remember one by one, whoever wrote it."""
    monkeypatch.setattr(start, "IN_ROWS", ("cpu",))
    given, data = experiment("scaffold"), federation((8,) * 7)
    whole = run(given, federation=data, quiet=True)

    def stop(record: dict[str, Any], state: Any) -> None:
        if record["round"] == 2:
            raise StopIteration

    run(given, federation=data, quiet=True, out=tmp_path, callbacks=[stop])
    assert_same(whole, run(given, federation=data, quiet=True, out=tmp_path, resume=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"attacks": ["label_shares"]},
        {"participation": {"buffer": 3, "delay": 1.0}},
        {"defence": {"name": "ldp", "epsilon": 10.0}},
        {"algorithm": {"name": "fedavg", "aggregation": "median", "weighting": "clients"}},
        {"training": {"rounds": 2, "batch_size": 4, "lr": 0.05, "dropout": 0.2}},
        {"participation": {"slowest": 0.3}},
    ],
    ids=["attacked", "asynchronous", "defended", "median", "dropout", "slow"],
)
def test_beside_other_things(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, _ = both(monkeypatch, experiment(**({"algorithm": "fedavg"} | changes)), federation((8, 5, 8, 9, 6, 8)))
    assert_same(one, other)
    assert [f.value for f in one.findings] == pytest.approx([f.value for f in other.findings], abs=1e-6)


def test_who_writes_a_method_anew_must_say_it_again() -> None:
    @dataclass(frozen=True)
    class Mine(FedAvg):
        def client(self, me: Any, message: Any) -> Any:
            return (yield from super().client(me, message))

    @dataclass(frozen=True)
    class Said(Mine):
        in_rows: ClassVar[bool] = True

    @dataclass(frozen=True)
    class Renamed(FedAvg):
        name: ClassVar[str] = "renamed"

    assert reads_in_rows(FedAvg())
    assert reads_in_rows(Renamed())
    assert reads_in_rows(Said())
    assert not reads_in_rows(Mine())
    assert not reads_in_rows(object())


def test_replies_in_rows_count_and_come_apart() -> None:
    models, samples = torch.arange(12.0).view(4, 3), np.array([7, 70, 700, 8])
    outcomes = Outcomes(np.array([3, 4, 5, 9]), LocalModel(models, samples), {"cluster": np.array([0, 1, 0, 1])})  # type: ignore[arg-type]
    each = list(outcomes.each())
    assert [(client, reply.samples, notes["cluster"]) for client, reply, notes in each] == [
        (3, 7, 0),
        (4, 70, 1),
        (5, 700, 0),
        (9, 8, 1),
    ]
    assert torch.equal(each[2][1].model, models[2])
    assert outcomes.bytes_sent() == sum(size(reply) for _, reply, _ in each)


def test_a_function_of_one_client_is_asked_for_each() -> None:
    clients: Any = [f"client {i}" for i in (3, 4)]
    cohort: Any = Cohort(np.array([3, 4]), 1, 0, np.array([1, 1]), Plan(), None, None, lambda: clients)  # type: ignore[arg-type]

    def each(function: Any, *arguments: Any, **how: bool) -> Any:
        return cohort.each(Compute("some", function, arguments, **how))

    names, numbers, nothing = each(lambda me, number, same: ([me, same], number, None), cohort, np.array([7, 8]), "all")
    assert names.tolist() == [["client 3", "all"], ["client 4", "all"]]
    assert numbers.dtype == np.int64 and numbers.tolist() == [7, 8] and nothing is None
    assert each(lambda me: [len(me)], cohort, alike=True) == [8]  # as one alone would say it
    with pytest.raises(Apart) as parted:
        each(lambda me: me, cohort, alike=True)
    assert not isinstance(parted.value, Alone)  # the next round they may be alike
    with pytest.raises(Alone):
        each(lambda me: torch.zeros(2), cohort)


class Letters(Rows[bytes]):
    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: Any) -> Any:
        return [b"abc", b"def", b"ghi"][at]

    def like(self) -> bytes:
        return bytes(3)


def test_lists_and_bytes_in_rows_count_and_come_apart() -> None:
    shown = np.fromiter([[0, 2], [1], [0, 12]], object, 3)
    reply: Any = MingledUpdate(shown, Letters(), turn=np.array([0, 1, 12]))  # type: ignore[arg-type]
    outcomes = Outcomes(np.array([3, 4, 5]), reply, {})
    each = [reply for _, reply, _ in outcomes.each()]
    assert each == [
        MingledUpdate([0, 2], b"abc", turn=0),
        MingledUpdate([1], b"def", turn=1),
        MingledUpdate([0, 12], b"ghi", turn=12),
    ]
    assert outcomes.bytes_sent() == sum(map(size, each))


def test_averages_of_rows() -> None:
    models, groups, weights = torch.randn(5, 3), np.array([0, 1, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    whole, one_by_one = Averages(2, models), Averages(2, models)
    whole.add(groups, models, weights)
    for j, model, weight in zip(groups.tolist(), models, weights.tolist()):
        one_by_one.add(j, model, weight)
    torch.testing.assert_close(whole.sums, one_by_one.sums)
    assert (whole.counts, whole.weights) == (one_by_one.counts, one_by_one.weights)


def test_the_losses_of_an_evaluation_serve_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    compute = Machine.compute

    def counted(self: Machine, jobs: Any) -> Any:
        asked.extend(job for job in jobs if isinstance(job.work, Losses))
        return compute(self, jobs)

    monkeypatch.setattr(Machine, "compute", counted)
    rounds, clients = 3, 4
    result = run(experiment("ifca", evaluation={"every": 1}), federation=federation((9, 9, 9, 9)), quiet=True)
    assert len(result.records) == rounds
    evaluations = rounds  # the one of the last round also says which models are kept
    assert len(asked) == clients * (1 + evaluations)


def test_clients_that_take_part_seldom_keep_no_models_of_earlier_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[int, weakref.ref[Tensor]] = {}
    compute = Machine.compute

    def seen(self: Machine, jobs: Any) -> Any:
        asked.update(
            {id(job.work.models): weakref.ref(job.work.models) for job in jobs if isinstance(job.work, Losses)}
        )
        return compute(self, jobs)

    alive = []
    monkeypatch.setattr(Machine, "compute", seen)
    run(
        experiment("ifca", training={"rounds": 8}, participation={"share": 0.25}, evaluation={"every": 8}),
        federation=federation((9,) * 8),
        callbacks=[lambda record, state: alive.append(sum(one() is not None for one in asked.values()))],
        quiet=True,
    )
    assert len(alive) == 8 and max(alive) <= 2  # those of this round, and those that it made
