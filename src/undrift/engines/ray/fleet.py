"""The driver's side of a Ray cluster: sites that come and go, and blocks of work for them."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from undrift import arithmetic
from undrift.config import UndriftError, own
from undrift.data.federated import FederatedData
from undrift.engines.base import Prepared
from undrift.system.extras import require
from undrift.training.task import Task
from undrift.training.work import Local

ray = require("ray", "ray", "the engine Ray")

from ray import cloudpickle  # noqa: E402
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: E402

from undrift.engines.ray.site import ARRAYS, Site  # noqa: E402
from undrift.engines.ray.wire import Parcel, pack, size, unpack  # noqa: E402

LOST = (
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.ObjectFetchTimedOutError,
    ray.exceptions.OutOfMemoryError,
)
"""What is raised if a site, its machine or a result of it is gone."""

ATTEMPTS = 3
"""Times that a site is lost before its machine is given up, or the block that it worked on."""

IN_FLIGHT = 2
"""Blocks at a site: one runs, the next one is there already."""

PATIENCE = 20.0
"""Seconds to wait for free CPUs, and for further sites once one is ready."""

LONGEST_START = 300.0
"""Seconds to wait for the first site."""

TICK = 2.0
"""Seconds between two looks for machines that have joined."""

log = logging.getLogger("undrift")


@dataclass(eq=False)
class Machine:
    """A machine of the cluster, and how many workers a site on it has."""

    node: str
    address: str
    workers: int


@dataclass(eq=False)
class SiteHandle(Machine):
    """A site, as the driver sees it; `loading` is None once it is ready."""

    actor: Any
    loading: Any
    blocks: int = 0


@dataclass(eq=False)
class Block:
    """Some items of a job, in their place among the blocks."""

    place: int
    parcel: Parcel
    losses: int = 0


class Fleet:
    """One site on each machine of a cluster.

    A block is a pure function of what is sent with it, so a block whose site is lost runs again
    elsewhere, with the same bits. Ray's own restarts are off: they lose arguments of actors that
    are in the object store (ray#53727); a lost site is made anew from references held here.
    """

    def __init__(self, address: str, workers: int | None, mixed: bool) -> None:
        connect(address)
        self.asked_workers, self.mixed = workers, mixed
        self.sites: dict[str, SiteHandle] = {}
        self.failures: Counter[str] = Counter()
        self.refused: set[str] = set()
        self.prepared: Prepared | None = None
        """of the first site that was ready"""
        self.starting = False
        self.traffic: Counter[str] = Counter()
        """bytes of jobs, parts (what goes with blocks) and results, and the number of blocks"""
        self.task: Task | None = None
        self._known: WeakKeyDictionary[Task, tuple[FederatedData, Local]] = WeakKeyDictionary()
        self._resident: dict[int, str] = {}
        self._parcels: tuple[Any, ...] = ()
        self._jobs = 0
        warn_if_open(ray.nodes(), os.environ)

    @property
    def workers(self) -> int:
        """Of the largest site."""
        return max((site.workers for site in self.sites.values()), default=1)

    # Tasks and data

    def load(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        """Give every site the task and the data; returns how jobs will run."""
        known = self._known.get(task)
        if self.prepared and self.task is task and known and known[0] is data and self.sites:
            return self._summary()
        for module in own.modules():
            cloudpickle.register_pickle_by_value(module)
        arrays = {id(getattr(data, name)): name for name in ARRAYS}
        task_parcel, data_parcel = packed(task, task), packed(data, data, views=True)
        self._parcels = ray.put(task_parcel), ray.put(data_parcel), local
        self.task, self._known[task] = task, (data, local)
        self._resident = {id(task): "task", id(data): "data", **arrays}
        self.prepared, self.starting = None, True
        for site in self.sites.values():
            site.loading = site.actor.load.remote(*self._parcels)
        if not self.sites:
            self._await_cpus()
        self._muster()
        self._await_sites()
        self.starting = False
        return self._summary()

    def recall(self, task: Task) -> None:
        """Make sure that the sites hold a task that was loaded before."""
        data, local = self._known[task]
        self.load(task, data, local)

    def _await_cpus(self) -> None:
        """Raise if others hold the CPUs of all machines."""
        needed = min((site.workers for site in self._wanted()), default=0)
        if not needed:
            raise UndriftError("no machine of the Ray cluster has a CPU; add machines")
        end = time.monotonic() + PATIENCE  # what has just ended frees its CPUs a little later
        while (free := ray.available_resources().get("CPU", 0)) < needed:
            if time.monotonic() > end:
                raise UndriftError(
                    f"a site on Ray needs {needed} CPUs, and {free:g} are free in the cluster: "
                    "another engine or job holds them; wait for it or end it, or give Ray(workers=)"
                )
            time.sleep(0.2)

    def _await_sites(self) -> None:
        """Wait until all sites are ready, or some are and the others take too long."""
        end = time.monotonic() + LONGEST_START
        while loading := {site.loading: site for site in self.sites.values() if site.loading}:
            done, _ = ray.wait([*loading], timeout=PATIENCE)
            for one in done:
                self._settle(loading[one])
            if not done and self.prepared:
                return
            if time.monotonic() > end:
                self.close()
                raise UndriftError(f"no site started on Ray within {LONGEST_START:g} seconds")

    def _settle(self, site: SiteHandle) -> None:
        """Take note of how a site's loading ended."""
        loaded, site.loading = site.loading, None
        try:
            prepared, facts = ray.get(loaded)
        except LOST as error:
            self._lose(site, error)
            if self.starting and not self.sites:
                raise UndriftError(
                    f"no site can start on Ray; on {site.address}: {reason(error)}; install the "
                    "same undrift, torch and ray on all machines"
                ) from None
            return
        except ray.exceptions.RayTaskError as error:
            self.close()
            raise UndriftError(
                f"the site on {site.address} cannot load the task or the data: {error.cause}; what "
                "they need must be importable on all machines"
            ) from None
        if other := self._difference(facts, prepared):
            if self.starting:
                self.close()
                raise UndriftError(
                    f"the machines round differently, {site.address} with {other}; use equal ones, "
                    "or accept that results depend on who computes with Ray(mixed=True)"
                )
            self._refuse(site, f"it rounds differently, with {other}")
        else:
            self.prepared = self.prepared or prepared

    def _difference(self, told: dict[str, str], prepared: Prepared) -> str:
        """What a site computes with that rounds differently from others, and is not accepted."""
        here, facts = arithmetic.facts(), arithmetic.recorded(told)
        versions = ("undrift", "torch", "numpy")
        checked = versions if self.mixed else (*versions, "processor", "mkl", "subnormals")
        if self.prepared and self.prepared.rounding != prepared.rounding and not self.mixed:
            return f"{prepared.about} (elsewhere {self.prepared.about})"
        return "; ".join(
            f"{name} {facts[name]} (here {here[name]})"
            for name in checked
            if facts[name] != here[name]
        )

    def _summary(self) -> Prepared:
        assert self.prepared is not None
        ready = [site for site in self.sites.values() if site.loading is None]
        how = self.prepared.about.partition(", ")[2]
        workers = sum(site.workers for site in ready)
        about = f"Ray: {len(ready)} sites with {workers} workers, {how}"
        if self.mixed:
            about += ", on machines that may round differently"
        return Prepared(self.prepared.rounding, about, self.mixed)

    # Sites

    def _wanted(self) -> Iterator[Machine]:
        """The machines that could have a site and have none."""
        for node in ray.nodes():
            name, cpus = node["NodeID"], int(node["Resources"].get("CPU", 0))
            if node["Alive"] and cpus and name not in self.sites and name not in self.refused:
                workers = min(cpus, self.asked_workers or cpus)
                yield Machine(name, node["NodeManagerAddress"], workers)

    def _muster(self) -> None:
        """Start a site on each machine that has none."""
        for machine in self._wanted():
            place = NodeAffinitySchedulingStrategy(machine.node, soft=False)
            options = {"max_restarts": 0, "scheduling_strategy": place}
            make = ray.remote(Site).options(num_cpus=machine.workers, **options)
            actor = make.remote(machine.workers)
            loading = actor.load.remote(*self._parcels)
            self.sites[machine.node] = SiteHandle(**vars(machine), actor=actor, loading=loading)

    def _lose(self, site: SiteHandle, error: Exception) -> None:
        """Forget a site; its machine gets another one, unless it loses too many."""
        if self.sites.get(site.node) is not site:
            return  # another of its blocks told so already
        del self.sites[site.node]
        self.failures[site.node] += 1
        if self.failures[site.node] >= ATTEMPTS:
            self._refuse(site, f"it lost {ATTEMPTS} sites, the last one since {reason(error)}")
        else:
            log.warning(
                "the site on %s is lost: %s; its clients run again", site.address, reason(error)
            )
            self._muster()

    def _refuse(self, site: SiteHandle, why: str) -> None:
        self.refused.add(site.node)
        self.sites.pop(site.node, None)
        ray.kill(site.actor)
        log.warning("the machine %s is not used: %s", site.address, why)

    def close(self) -> None:
        """End all sites."""
        for site in self.sites.values():
            with suppress(Exception):  # it may be lost
                ray.kill(site.actor)
        self.sites = {}
        self.prepared = None

    # Jobs

    def run(self, method: str, job: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Results of the blocks of a job, in order; blocks are read as sites become free."""
        self._muster()
        self._jobs += 1
        number, job_parcel = self._jobs, packed(job, job, self._resident)
        self.traffic["jobs"] += size(job_parcel)
        job_held = ray.put(job_parcel)
        blocks = (Block(place, packed(one, job, self._resident)) for place, one in enumerate(items))
        again: deque[Block] = deque()
        running: dict[Any, tuple[Block, SiteHandle]] = {}
        done: dict[int, Any] = {}
        following, exhausted = 0, False
        try:
            while True:
                while (again or not exhausted) and (site := self._free()):
                    block = again.popleft() if again else next(blocks, None)
                    if block is None:
                        exhausted = True
                        continue
                    call = getattr(site.actor, method).remote(number, job_held, block.parcel)
                    self.traffic += Counter(parts=size(block.parcel), blocks=1)
                    running[call] = block, site
                    site.blocks += 1
                if exhausted and not again and not running:
                    return
                call = self._next(running)
                if call is None:
                    continue
                block, site = running.pop(call)
                site.blocks -= 1
                try:
                    parcel, notes = ray.get(call)
                except LOST as error:
                    self._lose(site, error)
                    block.losses += 1
                    if block.losses >= ATTEMPTS:
                        raise UndriftError(
                            f"clients lost their site {ATTEMPTS} times, the last one on "
                            f"{site.address}: {reason(error)}"
                        ) from None
                    again.append(block)
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause if isinstance(error.cause, Exception) else error from None
                self.failures[site.node] = 0
                self.traffic["results"] += size(parcel)
                for note in notes:
                    say_once(note)
                done[block.place] = unpack(parcel)
                while following in done:
                    yield done.pop(following)
                    following += 1
        finally:
            if running:  # after an error or an interrupt: a running block cannot be stopped
                self.close()

    def _free(self) -> SiteHandle | None:
        """The ready site with the fewest blocks; None if all have enough."""
        ready = [site for site in self.sites.values() if site.loading is None]
        least = min(ready, key=lambda site: site.blocks, default=None)
        return least if least and least.blocks < IN_FLIGHT else None

    def _next(self, running: Iterable[Any]) -> Any:
        """Wait for a call to end, or for a change among the sites, for which this returns None."""
        if not self.sites:
            raise UndriftError("all machines of the Ray cluster are lost; the run can be resumed")
        loading = {site.loading: site for site in self.sites.values() if site.loading}
        ended, _ = ray.wait([*running, *loading], num_returns=1, timeout=TICK)
        if not ended:
            self._muster()
        for one in ended:
            if one not in loading:
                return one
            self._settle(loading[one])
        return None


def connect(address: str) -> None:
    """Connect this process to a cluster, if it is not connected."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if address not in ("auto", there):
            raise UndriftError(
                f"Ray(address={address!r}): this process is connected to the cluster at {there}; "
                "leave the address out, or call ray.shutdown() first"
            )
        return
    try:
        with signals_kept():
            ray.init(address, log_to_driver=False, configure_logging=False)
            # Ray would still print pages to stdout when a machine dies, also between our JSON.
            ray._private.worker._worker_logs_enabled = False
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UndriftError(
            f"Ray(address={address!r}): no cluster answers: {str(error).splitlines()[0]}; start "
            "one with: ray start --head; on every other machine: ray start --address=HEAD:6379"
        ) from None


@contextmanager
def signals_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which `ray.init` replaces, after the block."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        with suppress(ValueError):  # not in the main thread, where Ray leaves it alone
            signal.signal(signal.SIGTERM, before)


def warn_if_open(nodes: Iterable[dict[str, Any]], environment: Any) -> None:
    """Warn if other machines are reached, and Ray runs without authentication."""
    if len({node["NodeManagerAddress"] for node in nodes}) < 2:
        return
    if environment.get("RAY_AUTH_MODE", "").lower() in ("", "disabled"):
        log.warning(
            "this Ray cluster has no authentication: whoever reaches its ports can run code on all "
            "machines; set RAY_AUTH_MODE=token on each of them (docs/howto/machines.md)"
        )


def packed(
    value: Any, whose: object, resident: dict[int, str] | None = None, *, views: bool = False
) -> Parcel:
    """A parcel; errors name what cannot be sent."""
    try:
        return pack(value, resident, views=views)
    except Exception as error:  # whatever the pickling of a user's object may raise
        raise UndriftError(
            f"{whose!r} cannot be sent to other machines: {error}; models, losses, transforms and "
            "algorithms must be picklable: keep locks, open files and connections out of them"
        ) from error


_said: set[str] = set()


def say_once(note: str) -> None:
    """Log a warning of a site, once per process."""
    if note not in _said:
        _said.add(note)
        log.warning(note)


def reason(error: Exception) -> str:
    """The first telling line of one of Ray's errors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or [type(error).__name__])[-1 if errors else 0].rstrip(".")
