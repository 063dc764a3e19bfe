"""The Ray cluster and the workers on it, which outlive a run: starting one means starting Python and torch, so the next run
of this process takes over those of the last. All end with this process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
import time
import warnings
from typing import Any

from covey.engines.ray.worker import Worker
from covey.engines.simulate import cores
from covey.errors import CoveyError, CoveyWarning
from covey.version import __version__

PATIENCE = 60.0  # seconds without a worker before a word is said
REPLACED = 180.0  # seconds within which a worker must be there again
STEP = 1.0  # seconds of waiting at a time

_idle: list[tuple[str, int, float, Any]] = []  # where it is, how many work together, GPUs of each, the actor


def connect(cpus: int = 0) -> Any:
    """The ray module, connected: as it is, else to the cluster at RAY_ADDRESS, else to one that is started here.

    One that is started here has `cpus` processors (0: those that this process may use) and stays until this process ends, so that
    several runs share it. Ray listens on every network interface, so it is given a token that nobody else has (`protect`).
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anyone
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        protect()
    try:
        import ray
    except ModuleNotFoundError as e:
        raise CoveyError(
            "engine.name is 'ray' but Ray is not installed: `pip install 'covey[ray]'`, or use engine.name = 'simulate'"
        ) from e
    if ray.is_initialized():
        return ray
    stop = signal.getsignal(signal.SIGTERM)
    settings: dict[str, Any] = {} if address else {"num_cpus": cpus or cores(), "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **settings)
    except (ConnectionError, RuntimeError, ValueError) as e:
        if not address:
            raise
        raise CoveyError(
            f"no Ray cluster lets us in at RAY_ADDRESS = {address!r}: start one with `ray start --head`, set its "
            "RAY_AUTH_TOKEN if it has one, or unset RAY_ADDRESS to compute on this machine"
        ) from e
    if callable(stop) and threading.current_thread() is threading.main_thread():
        signal.signal(
            signal.SIGTERM, stop
        )  # Ray puts its own there, and a command that is stopped would write no checkpoint
    return ray


def protect() -> None:
    """A token for clusters that are started here. Ray reads it when it is imported: afterwards there is only a word to say."""
    if "RAY_AUTH_MODE" in os.environ:
        return
    if "ray" not in sys.modules:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    elif (ray := sys.modules["ray"]) is not None and not ray.is_initialized():
        warnings.warn(
            "this program imported ray before covey could set a token: the cluster that starts now lets in whoever reaches "
            "this machine's ports; set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN before Python starts, or import ray after the run",
            CoveyWarning,
            stacklevel=3,
        )


def acquire(ray: Any, count: int, gpus: float = 0.0) -> list[Any]:
    """So many workers with so much of a GPU each, in no run; idle ones first."""
    node = _own_node(ray)
    actors: list[Any] = []
    while _idle:
        at, of, on, actor = _idle.pop()
        if at != node:
            continue  # its cluster was left
        if (of, on) == (count, gpus) and len(actors) < count and _alive(ray, actor):
            actors.append(actor)
        else:
            _end(ray, actor)
    new = [start_worker(ray, count, gpus=gpus) for _ in range(count - len(actors))]
    _await(ray, new)
    return actors + new


def start_worker(ray: Any, count: int, share: float | None = None, gpus: float = 0.0) -> Any:
    """One of `count` workers: they may be more than there are processors, as processes may. It takes its share of them unless
    told otherwise. Of a GPU it gets what it asks for, and sees no other: Ray sets CUDA_VISIBLE_DEVICES.
    """
    if share is None:
        share = min(1.0, int(1e4 * processors(ray) / count) / 1e4)
    needs: dict[str, Any] = {"num_cpus": share, "num_gpus": gpus}
    remote = ray.remote(**needs, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD")(Worker)
    return remote.remote()


def replace_worker(ray: Any, count: int, gpus: float = 0.0) -> Any:
    """One in the place of a dead one, on any machine that is left. Its processors may be gone with that, so it asks for none: Ray
    would wait for them for ever. A GPU it must have: where none is free the run ends, to be resumed with fewer workers.
    """
    until = time.monotonic() + REPLACED
    while True:
        actor = start_worker(ray, count, share=0.0, gpus=gpus)
        try:
            fetched(ray, actor.ready.remote(), max(until - time.monotonic(), STEP))
            return actor
        except gone(ray):  # Ray may place it on the machine that has just died, until that misses its heartbeats
            if time.monotonic() > until:
                raise
            time.sleep(STEP)
        except TimeoutError as e:
            raise CoveyError(
                f"a Ray worker is gone and the cluster started no other in {REPLACED:.0f} s (`ray status`); finished rounds up to "
                "the last checkpoint are kept: continue with `covey resume`"
            ) from e


def fetched(ray: Any, ref: Any, seconds: float = float("inf")) -> Any:
    """What an answer says, once it is there. Waits in small steps: Ray's own waiting hears no Ctrl-C while a machine is lost."""
    until = time.monotonic() + seconds
    refs = ref if isinstance(ref, list) else [ref]
    while len(ray.wait(refs, num_returns=len(refs), timeout=STEP)[0]) < len(refs):
        if time.monotonic() > until:
            raise TimeoutError
    return ray.get(ref)


def release(ray: Any, actors: list[Any], gpus: float = 0.0) -> None:
    """The end of a run: what its workers hold of it is dropped. They stay, for another."""
    with contextlib.suppress(Exception):  # the cluster may be gone
        node = _own_node(ray)
        for actor in actors:
            actor.end.remote()
        _idle.extend((node, len(actors), gpus, actor) for actor in actors)


def shut_down(ray: Any) -> None:
    """Idle workers give their processors back, for work of another kind."""
    while _idle:
        _end(ray, _idle.pop()[-1])


def processors(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def places(ray: Any, gpus: float) -> int:
    """How many workers the cluster has room for: one per processor, or as many as its GPUs serve."""
    if not gpus:
        return processors(ray)
    there = float(ray.cluster_resources().get("GPU", 0))
    room = int(there / gpus) if gpus >= 1 else int(there) * int(1 / gpus)
    if not room:
        raise CoveyError(
            f"engine.device is 'cuda' and the Ray cluster has {there:g} GPUs, a worker wants {gpus:g} (engine.gpus): start it with "
            "`ray start --num-gpus=…` on machines that have some, or use engine.device = 'cpu'"
        )
    return room


def gone(ray: Any) -> tuple[type[Exception], ...]:
    """What Ray raises when a worker, its machine, or an answer that lay there is gone."""
    e = ray.exceptions
    return (e.RayActorError, e.ObjectLostError, e.WorkerCrashedError, e.OutOfMemoryError, e.NodeDiedError)


def _own_node(ray: Any) -> str:
    return str(ray.get_runtime_context().get_node_id())


def _alive(ray: Any, actor: Any) -> bool:
    try:
        return bool(ray.get(actor.ready.remote()) == __version__)
    except gone(ray):
        return False


def _end(ray: Any, actor: Any) -> None:
    with contextlib.suppress(Exception):
        ray.kill(actor)


def _await(ray: Any, actors: list[Any]) -> None:
    ready = [actor.ready.remote() for actor in actors]
    started, missing = ray.wait(ready, num_returns=len(ready), timeout=PATIENCE) if ready else ([], [])
    if missing:
        warnings.warn(
            f"{len(missing)} of {len(actors)} Ray workers have not started after {PATIENCE:.0f} s: the cluster may be busy "
            "(`ray status`)",
            stacklevel=2,
        )
    try:
        others = set(ray.get(started)) - {__version__}
    except gone(ray) as e:
        for actor in actors:
            _end(ray, actor)
        last = str(e).strip().splitlines()[-1].strip()
        raise CoveyError(
            f"a Ray worker did not start ({last}): covey {__version__} must be installed on every machine of the cluster"
        ) from e
    if others:
        for actor in actors:
            _end(ray, actor)
        raise CoveyError(
            f"the Ray cluster has covey {', '.join(sorted(others))}, here is {__version__}: install one version everywhere"
        )
