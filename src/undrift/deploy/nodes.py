"""The engine of a deployment: its clients are nodes behind Flower's SuperLink."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from undrift.core import Algorithm, Struct
from undrift.data.federated import FederatedData
from undrift.deploy.answers import is_score, misfit, one_line, read
from undrift.deploy.node import Ask
from undrift.deploy.roster import Roster, refuse_claims
from undrift.deploy.wire import Refused, pack, unpack, with_facts
from undrift.engines.base import ClientJob, Clients, Prepared, Sums, gathered
from undrift.federation.aggregate import first_bad, nbytes
from undrift.federation.jobs import ClientQueue, SurveyJob, TrainJob
from undrift.measure.clients import OwnScore
from undrift.measure.cost import upload_forms
from undrift.training.sums import Sums as Totals
from undrift.training.task import Task
from undrift.training.trainer import ClientResult, Trainer, Work
from undrift.training.work import Local

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid

A = TypeVar("A")
B = TypeVar("B")

AGAIN = 60.0
"""seconds after which a node that was turned away is asked again who it is"""

Trial = tuple[str, int]
"""An algorithm and a seed."""


@dataclass(frozen=True)
class Exchange:
    """What happened in one exchange with a round's clients.

    kind    survey or train
    absent  client → why it delivered nothing
    """

    algorithm: str
    seed: int
    round: int
    kind: str
    asked: list[int]
    absent: dict[int, str]


@dataclass
class Nodes:
    """Runs the clients of a round on their nodes; what is not about one client runs here.

    deadline  seconds that a round waits for answers
    quorum    a round with fewer deliveries is void: nothing changes
    note      called with what is worth knowing
    task      facts of the task, for nodes
    nodes     Flower's number of a node → its client
    poll      seconds between two looks for answers
    """

    grid: Grid
    roster: Roster
    deadline: float
    quorum: int
    note: Callable[[str], None]
    task: Ask
    nodes: dict[int, int] = field(default_factory=dict)
    poll: float = 1.0
    changed: Callable[[], None] = lambda: None
    """called when the roster has changed"""
    record: Callable[[Exchange], None] = lambda exchange: None
    """called with what happened in each exchange of a round"""
    _receipts: dict[Trial, tuple[int, dict[int, int], dict[int, int]]] = field(default_factory=dict)
    """trial → round, receipts before it, and those before the round before it"""
    _forms: dict[Algorithm, tuple[Struct, Struct]] = field(default_factory=dict)
    """algorithm → what its clients answer to a survey, and what they upload"""
    _ignored: dict[int, tuple[float, str]] = field(default_factory=dict)
    """node → time until which it is not asked who it is, and why"""

    # ------------------------------------------------------------------ the engine

    def prepare(self, task: Task, data: FederatedData, local: Local) -> Prepared:
        return Prepared("python", f"{len(self.roster.clients)} nodes through Flower")

    def map(self, job: Callable[[Trainer, A], B], task: Task, items: Iterable[A]) -> Iterator[B]:
        """Scores of clients' own samples come from the nodes."""
        if isinstance(job, OwnScore):
            return iter(self._scores(job, list(items)))  # type: ignore[arg-type]
        trainer = Trainer(task)
        return (job(trainer, item) for item in items)

    def gather(
        self, job: ClientJob, task: Task, clients: Clients, into: Sums
    ) -> Iterator[ClientResult]:
        assert isinstance(job, SurveyJob | TrainJob)
        assert isinstance(clients, ClientQueue)
        results = self._ask_all(job, task, clients)
        delivered = sum(result.delivered for result in results)
        if results and delivered < self.quorum:
            void = f"the round is void: {delivered} delivered, and {self.quorum} must"
            results = [
                ClientResult.missing(void) if result.delivered else result for result in results
            ]
        for work in clients.works[:1]:
            kind = "survey" if isinstance(job, SurveyJob) else "train"
            asked = [one.client for one in clients.works]
            absent = {
                client: result.absent or f"{result.bad} is not finite"
                for client, result in zip(asked, results, strict=True)
                if not result.delivered
            }
            self.record(Exchange(repr(job.algorithm), work.seed, work.t, kind, asked, absent))
        return gathered(results, clients, into)

    def close(self) -> None:
        pass

    # ------------------------------------------------------------------ who is there

    def available(self, t: int) -> list[int]:
        """The clients whose nodes are connected; waits until they are enough for the quorum."""
        told = False
        while True:
            here = self.meet()
            if len(here) >= max(1, self.quorum):
                return here
            if not told:
                needed = max(1, self.quorum)
                self.note(f"round {t}: {len(here)} nodes are connected; waiting for {needed}")
                told = True
            time.sleep(self.poll)

    def meet_all(self) -> None:
        """Wait until every client has joined once: only then their weights are known."""
        told: list[int] = []
        while True:
            self.meet()
            missing = self.roster.unknown
            if not missing:
                return
            if missing != told:
                names = ", ".join(map(self.roster.told, missing))
                self.note(f"waiting for nodes that have not joined yet: {names}")
                told = missing
            time.sleep(self.poll)

    def meet(self) -> list[int]:
        """The clients that are connected; nodes that are not known yet say who they are."""
        now = time.monotonic()
        online = [n for n in self.grid.get_node_ids() if self._ignored.get(n, (0,))[0] <= now]
        new = [
            node
            for node in online
            if node not in self.nodes or self.nodes[node] in self.roster.unknown
        ]
        if new:
            self._greet(new, online)
        return sorted(self.nodes[node] for node in online if node in self.nodes)

    def _greet(self, nodes: Sequence[int], online: Sequence[int]) -> None:
        """Ask nodes which client they are and what they have."""
        answers: dict[int, dict[str, Any]] = {}
        claims = {self.nodes[node]: [node] for node in online if node in self.nodes}
        replies = self._send("query", pack({}), [(node, self.task) for node in nodes])
        for node, reply in zip(nodes, replies, strict=True):
            facts, absent = read(reply)
            if why := absent or misfit(facts):
                self._turn_away(node, why)
                continue
            answers[node] = facts
            client = facts["client"]
            if node in self.nodes:
                if client not in (-1, self.nodes[node]):
                    told = self.roster.told(self.nodes[node])
                    self._turn_away(node, f"its key is that of {told}, and it says {client}")
                    del answers[node]
            else:
                claims.setdefault(client, []).append(node)
        for node, why in refuse_claims(claims, len(self.roster.clients)).items():
            answers.pop(node, None)
            self._turn_away(node, why)
        for node, facts in answers.items():
            client = self.nodes.get(node, facts["client"])
            others = {n: c for n, c in self.nodes.items() if c != client}
            self.nodes = others | {node: client}  # without keys, each start is another node
            entry = self.roster.clients[client]
            if entry.samples is None:
                entry.samples, entry.tests = facts["samples"], facts["tests"]
                self.note(f"{self.roster.told(client)} has joined with {entry.samples} samples")
                self.changed()

    def _turn_away(self, node: int, why: str) -> None:
        """Ignore a node for some time, and tell why, once."""
        client = self.nodes.get(node)
        name = f"node {node}" if client is None else self.roster.told(client)
        if self._ignored.get(node, (0, ""))[1] != why:
            self.note(f"{name}: {why}")
        self._ignored[node] = time.monotonic() + AGAIN, why

    # ------------------------------------------------------------------ one exchange

    def _ask_all(
        self, job: SurveyJob | TrainJob, task: Task, clients: ClientQueue
    ) -> list[ClientResult]:
        """The results of a round's clients, in their order."""
        works = list(clients.works)
        if not works:
            return []
        trial = (repr(job.algorithm), works[0].seed)
        receipts, floors = self._stamps(trial, works[0].t, clients.memories)
        shared = pack({}, down=job.down, model=Struct(buffers=job.buffers))
        asks = [
            replace(
                self.task,
                run=self.roster.run,
                seed=work.seed,
                t=work.t,
                client=work.client,
                accepted=receipts.get(work.client, 0),
                floor=floors.get(work.client, 0),
                algorithm=trial[0],
                local=repr(work.local),
                n_mean=work.n_mean,
            )
            for work in works
        ]
        kind = "train.survey" if isinstance(job, SurveyJob) else "train"
        replies = self._send_to_clients(kind, shared, asks)
        if job.algorithm not in self._forms:
            self._forms[job.algorithm] = upload_forms(job.algorithm, task.x0)
        answer, up = self._forms[job.algorithm]
        results = []
        for work, ask, reply in zip(works, asks, replies, strict=True):
            facts, absent = read(reply, ask)
            result = ClientResult.missing(absent)
            if not absent:
                try:
                    assert reply is not None
                    result = (
                        _surveyed(reply.content, answer)
                        if isinstance(job, SurveyJob)
                        else self._trained(job, task, work, facts, reply.content, up)
                    )
                except Refused as refused:
                    result = ClientResult.missing(f"refused: {one_line(refused)}")
            results.append(result)
            self._enter(ask, facts, result)
        self.changed()
        return results

    def _trained(
        self,
        job: TrainJob,
        task: Task,
        work: Work,
        facts: Mapping[str, Any],
        content: RecordDict,
        form: Struct,
    ) -> ClientResult:
        """What an upload amounts to; raises `Refused` if it is not one."""
        sent = unpack(content, "up", form)
        side = unpack(content, "side", Struct(buffers=task.buffers0))
        loss, steps, samples = (facts.get(key) for key in ("loss", "steps", "samples"))
        if type(loss) is not float or type(steps) is not int or type(samples) is not int:
            raise Refused("loss, steps or samples are not numbers")
        if steps < 0 or samples < 0:
            raise Refused(f"{steps} steps on {samples} samples")
        accepted = Struct(accepted=work.t)
        got = ClientResult(sent, accepted, side.buffers, loss, steps, samples)
        return job.receive(got, task.groups)

    def _stamps(
        self, trial: Trial, t: int, memories: Mapping[int, Struct]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """The receipts of all clients now, and in the oldest checkpoint that is kept.

        A run keeps two checkpoints. When round t begins they are those of t-1, which is the state
        now, and of t-2, which was the state when round t-1 began. Where the engine has not seen
        that, nothing may be forgotten.
        """
        known, now, floors = self._receipts.get(trial, (0, {}, {}))
        if known != t:
            floors = now if known == t - 1 else {}
            now = {client: int(row.accepted) for client, row in memories.items()}
            self._receipts[trial] = t, now, floors
            for client, entry in enumerate(self.roster.clients):
                entry.accepted = now.get(client, 0)
        return now, floors

    def _enter(self, ask: Ask, facts: Mapping[str, Any], result: ClientResult) -> None:
        """Write down how a client answered."""
        entry = self.roster.clients[ask.client]
        entry.absent = result.absent
        if result.bad:
            entry.absent = f"{result.bad} is not finite"
        entry.lost = facts.get("last")
        entry.algorithm, entry.seed = ask.algorithm, ask.seed
        if result.delivered:
            entry.seen = ask.t
        else:
            self.note(f"round {ask.t}: {self.roster.told(ask.client)}: {entry.absent}")

    def _scores(self, job: OwnScore, items: Sequence[tuple[int, Tensor, Tensor]]) -> list[Totals]:
        """The scores of models on clients' own samples; those of absent clients are empty."""
        if not items:
            return []
        _, x, buffers = items[0]
        shared = pack({}, model=Struct(x=x, buffers=buffers))
        local = "" if job.local is None else repr(job.local)
        asks = [
            replace(self.task, t=job.t, client=client, seed=job.seed, local=local)
            for client, _, _ in items
        ]
        scores = []
        for ask, reply in zip(asks, self._send_to_clients("evaluate", shared, asks), strict=True):
            facts, absent = read(reply, ask)
            loss, right, answers = (facts.get(key, 0) for key in ("loss", "right", "answers"))
            if not absent and not is_score(loss, right, answers):
                absent = "refused: " + one_line(f"a loss of {loss} and {right} right of {answers}")
            if absent:
                self.note(f"round {job.t}: no score of {self.roster.told(ask.client)}: {absent}")
            if absent or not answers:
                scores.append(Totals())
            else:
                all_ = Totals.ALL
                scores.append(Totals(loss, Counter({all_: right}), Counter({all_: answers})))
        return scores

    # ------------------------------------------------------------------ messages

    def _send_to_clients(
        self, kind: str, shared: RecordDict, asks: Sequence[Ask]
    ) -> list[Message | None]:
        """Send questions that share their records; answers in the same order."""
        place = {client: node for node, client in self.nodes.items()}
        return self._send(kind, shared, [(place.get(ask.client, 0), ask) for ask in asks])

    def _send(
        self, kind: str, shared: RecordDict, asks: Sequence[tuple[int, Ask]]
    ) -> list[Message | None]:
        """Answers of nodes in the order of the questions; None where none came in time.

        Flower's own `send_and_receive` returns them in the order of arrival, which is not
        repeatable, and looks for them every three seconds only.
        """
        from flwr.app import Message

        def message(node: int, ask: Ask) -> Message:
            facts = asdict(replace(ask, nonce=secrets.token_hex(16)))
            return Message(with_facts(shared, facts), node, kind, ttl=self.deadline)

        known = [i for i, (node, _) in enumerate(asks) if node]
        sent = [message(*asks[i]) for i in known]
        ids = dict(zip(known, self.grid.push_messages(sent), strict=True))
        waiting = {one for one in ids.values() if one}
        found: dict[str, Message] = {}
        end = time.monotonic() + self.deadline
        while waiting:
            for reply in self.grid.pull_messages(list(waiting)):
                found[reply.metadata.reply_to_message_id] = reply
            waiting -= found.keys()
            left = end - time.monotonic()
            if left <= 0:
                break
            if waiting:
                time.sleep(min(self.poll, left))
        return [found.get(ids.get(i) or "") for i in range(len(asks))]


def _surveyed(content: RecordDict, form: Struct) -> ClientResult:
    up = unpack(content, "up", form)
    return ClientResult(
        up, Struct(), torch.empty(0), record=up, bytes_up=nbytes(up), bad=first_bad(up)
    )
