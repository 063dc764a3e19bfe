"""One trouble at a time: what happens, and the seconds after which all parties, back at their places, work together again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from chaos.federation import Federation, signalled

GOAL_SECONDS = 30.0


def _stand_still(federation: Federation, pids: list[int], seconds: float) -> float:
    signalled(pids, signal.SIGSTOP)
    time.sleep(seconds)
    signalled(pids, signal.SIGCONT)
    return federation.rounds()


def pause_of_the_server(federation: Federation) -> float:
    """Coordinator, door and SuperLink stand still for 60 s, as under a closed lid."""
    return _stand_still(federation, federation.pids("server"), 60)


def pause_of_the_coordinator_alone(federation: Federation) -> float:
    """The coordinator's own process stands still for 100 s."""
    return _stand_still(federation, federation.pids("server")[:1], 100)


def pause_of_the_superlink_alone(federation: Federation) -> float:
    """Flower's process stands still for 60 s."""
    return _stand_still(federation, federation.found("flower-superlink"), 60)


def pause_of_a_silo(federation: Federation) -> float:
    """A silo's machine stands still for 70 s."""
    return _stand_still(federation, federation.pids("north"), 70)


def superlink_killed(federation: Federation) -> float:
    """Flower's process ends."""
    signalled(federation.found("flower-superlink"), signal.SIGKILL)
    return federation.rounds()


def door_killed(federation: Federation) -> float:
    """The process that listens to the network ends."""
    signalled(federation.found("door.py"), signal.SIGKILL)
    return federation.rounds()


def silo_killed(federation: Federation) -> float:
    """A silo is killed and started again at once."""
    federation.kill("south")
    federation.join("south")
    return federation.rounds()


def silo_away(federation: Federation) -> float:
    """A silo is killed and started again after 45 s."""
    federation.kill("south")
    time.sleep(45)
    federation.join("south")
    return federation.rounds()


def server_killed(federation: Federation) -> float:
    """The coordinator is killed and started again at once."""
    federation.kill("server")
    federation.parties.serve()
    return federation.rounds()


def server_away(federation: Federation) -> float:
    """The coordinator is killed and started again after 90 s."""
    federation.kill("server")
    time.sleep(90)
    federation.parties.serve()
    return federation.rounds()


def server_moved(federation: Federation) -> float:
    """The coordinator is killed and started again at another address, to which its name leads."""
    federation.kill("server")
    federation.move()
    federation.parties.serve()
    return federation.rounds()


def server_restarted_without_a_silo(federation: Federation) -> float:
    """A silo is taken out, the server started again, then the silo comes back."""
    federation.kill("west")
    federation.kill("server")
    federation.parties.serve()
    time.sleep(30)
    federation.join("west")
    return federation.rounds()


def refused(federation: Federation) -> float:
    """One silo's connections are reset and refused for 30 s."""
    federation.wires["north"].cut()
    time.sleep(30)
    federation.wires["north"].mend()
    return federation.rounds()


def refused_for_long(federation: Federation) -> float:
    """One silo's connections are reset and refused for 150 s."""
    federation.wires["north"].cut()
    time.sleep(150)
    federation.wires["north"].mend()
    return federation.rounds()


def partition(federation: Federation) -> float:
    """All silos are cut off for 75 s."""
    for wire in federation.wires.values():
        wire.cut()
    time.sleep(75)
    for wire in federation.wires.values():
        wire.mend()
    return federation.rounds()


def swallowed(federation: Federation) -> float:
    """What one silo and the server send each other is lost for 30 s."""
    federation.wires["north"].swallow()
    time.sleep(30)
    federation.wires["north"].mend()
    return federation.rounds()


def forgotten(federation: Federation) -> float:
    """The same, and afterwards the network knows no connection any more and tells nobody."""
    federation.wires["north"].swallow()
    time.sleep(30)
    federation.wires["north"].mend(forget=True)
    return federation.rounds()


def slow(federation: Federation) -> float:
    """Everything that one silo sends or gets takes .2 s longer, piece by piece; measured while it does."""
    federation.wires["north"].delay = 0.2
    try:
        return federation.rounds()
    finally:
        federation.wires["north"].delay = 0.0


CASES: dict[str, Callable[[Federation], float]] = {
    case.__name__: case
    for case in (
        silo_killed,
        superlink_killed,
        door_killed,
        server_killed,
        refused,
        swallowed,
        forgotten,
        server_moved,
        slow,
        server_restarted_without_a_silo,
        silo_away,
        pause_of_the_server,
        pause_of_the_superlink_alone,
        pause_of_a_silo,
        partition,
        server_away,
        pause_of_the_coordinator_alone,
        refused_for_long,
    )
}
