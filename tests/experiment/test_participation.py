"""Who takes part: sampling, drop-outs, joiners and slow devices are pure functions of seed and round."""

from __future__ import annotations

import numpy as np

from covey.engines.calls import heterogeneous
from covey.experiment.participation import Participation
from covey.learn.work import Plan


def test_everyone_by_default() -> None:
    present, lost = Participation().participants(0, 1, 7)
    assert present.tolist() == list(range(7)) and not len(lost)


def test_a_share_is_drawn_anew_each_round_and_reproducibly() -> None:
    p = Participation(share=0.3)
    first, second = p.participants(1, 1, 100)[0], p.participants(1, 2, 100)[0]
    assert len(first) == len(second) == 30
    assert first.tolist() == p.participants(1, 1, 100)[0].tolist() != second.tolist()
    assert (np.diff(first) > 0).all()


def test_scheduled_and_random_drop_outs() -> None:
    p = Participation(drops=((2, 3),))
    arrived, dropped = p.participants(0, 2, 5)
    assert (arrived.tolist(), dropped.tolist()) == ([0, 1, 2, 4], [3])
    assert not len(p.participants(0, 1, 5)[1])
    lost = [len(Participation(dropout=0.2).participants(0, t, 200)[1]) for t in range(1, 51)]
    assert 0.17 < np.mean(lost) / 200 < 0.23


def test_joiners_come_by_schedule() -> None:
    p = Participation(initial=100, join=10, join_every=10)
    assert [p.joined(t, 120) for t in (1, 10, 11, 20, 21, 99)] == [100, 100, 110, 110, 120, 120]


def test_slow_devices_do_less_but_something() -> None:
    speeds = Participation(slowest=0.2).speeds(0, 1000)
    assert speeds.min() >= 0.2 and speeds.max() <= 1 and 0.55 < speeds.mean() < 0.65
    assert heterogeneous(Plan(epochs=5), 0.2).epochs == 1
    assert heterogeneous(Plan(epochs=5), 0.5).epochs == 2
    assert heterogeneous(Plan(steps=10), 0.01).steps == 1
