"""What groups train: their clients go through an engine in blocks, and are added up as they come.

A block's models exist only while the engine works on them, unless a method asks for the models of
single clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sdfeel.algorithm.events import Group, Indices
from sdfeel.algorithm.methods.codecs import Draw
from sdfeel.algorithm.methods.corrections import Correction
from sdfeel.algorithm.methods.method import Floats, Method, Period
from sdfeel.engines.engine import Engine, Learning, Sums, Work

if TYPE_CHECKING:
    from sdfeel.simulation.state import State

# Numbers of models that a core works on at a time: what is done to a model stays in its cache.
CACHED = 2**18
# A block of clients holds about so many numbers in its models, and at least so many clients. Where
# no model of a client is ever written, it may hold so many times more.
BLOCK = 4 * 2**20
FEWEST = 16
UNWRITTEN = 2


@dataclass
class Trained:
    """The results of training the groups of a window.

    place   the row of each group in `sums`; part: its clients among all
    sums    of each group, the sum of its clients' models times their weights
    models  of each group the models of its clients, where a method asks for them
    rows    what the clients remember now, as `name.row`
    losses  of each client, in the order of groups: those of its mini-batches
    """

    place: dict[int, int]
    part: dict[int, slice]
    sums: Tensor
    models: dict[int, Tensor] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    losses: list[NDArray[np.float64]] = field(default_factory=list)

    def rows_of(self, method: Method, group: Group) -> dict[str, Floats]:
        """Rows of a group's clients, which a method may change."""
        part, keys = (
            self.part[group.number],
            {name: f"{method.name}.{name}" for name in method.rows},
        )
        known = {name: self.rows[key] for name, key in keys.items() if key in self.rows}
        return {name: rows[part].cpu().numpy() for name, rows in known.items()}


class Training:
    """Carries out the local updates of a state's groups.

    spare  memory of sums that is free again: new pages would cost as much as the sums
    """

    def __init__(self, state: State) -> None:
        self.state, self.algorithm, self.problem = state, state.algorithm, state.problem
        numbers = state.ranks.clients
        clients = self.problem.client_ids
        place = np.full(int(clients.max()) + 1, -1)
        place[clients] = np.arange(len(clients))
        self._places = place[np.asarray(numbers, dtype=np.int64)]
        wants_models = ("combine", "learn", "upload")
        self._keeps_models = any(self.algorithm.having(hook) for hook in wants_models)
        self._is_exact = self.algorithm.codecs["up"].exact
        self.spare: Tensor | None = None

    def carry_out(
        self, groups: Sequence[Group], engine: Engine, is_stopped: Callable[[], bool]
    ) -> Trained:
        """Train all groups; nothing of the state changes."""
        trained, busy = self._empty(groups), [group for group in groups if len(group.clients)]
        if not busy:
            return trained
        clients, first, last, weights = (
            np.concatenate([getattr(group, name) for group in busy])
            for name in ("clients", "first", "last", "weights")
        )
        counts = [len(group.clients) for group in busy]
        to = np.repeat([trained.place[group.number] for group in busy], counts)
        begin = np.repeat([self.state.rows_of_groups[group.number] for group in busy], counts)
        servers = np.repeat([self.state.row_of_server[group.server] for group in busy], counts)
        here, chain = self.state.row_of_client[clients], self.algorithm.chain
        trained.rows = {n: rows[torch.from_numpy(here)] for n, rows in self.state.clients.items()}
        learning, empty = self._learning(engine, busy[0]), np.ones(len(groups), dtype=bool)
        is_whole = self._keeps_models or learning is not None
        for block in cuts(to, self._block(engine, learning), is_whole):
            rows = {
                name: all_rows[block]
                for name, all_rows in trained.rows.items()
                if name in chain.rows
            }
            shared = {name: (self.state.servers[name], servers[block]) for name in chain.shared}
            work = Work(
                clients=self._places[here[block]],
                first=first[block],
                last=last[block],
                start=(self.state.held, begin[block]),
                rows=rows,
                shared=shared,
                learning=learning,
                is_stopped=is_stopped if engine.can_restart else lambda: False,
            )
            sums = Sums(trained.sums, to[block], weights[block], empty)
            if self._only_sums(learning):
                losses = engine.add_up(work, sums)
            else:
                models = work.start[0].new_empty(len(sums.to), work.start[0].shape[1])
                losses = engine.train(work, models)
                if self.algorithm.having("upload"):
                    self._upload(models, groups, sums.to)
                self._receive(models, work, clients[block], trained, block)
                sums.add(models)
                if self._keeps_models:
                    self._keep(models, groups, sums.to, trained)
            steps = work.last - work.first + 1
            trained.losses += [
                of_client[:count] for of_client, count in zip(losses, steps, strict=True)
            ]
        return trained

    def _empty(self, groups: Sequence[Group]) -> Trained:
        """Room for what groups train; in memory that was used before, if there is enough."""
        place = {group.number: at for at, group in enumerate(groups)}
        ends = np.cumsum([0, *(len(group.clients) for group in groups)])
        part = {g.number: slice(*ends[at : at + 2].tolist()) for at, g in enumerate(groups)}
        sums, self.spare = self.spare, None
        if sums is None or len(sums) != len(groups):
            sums = self.state.models.new_empty(len(groups), self.state.models.shape[1])
        return Trained(place, part, sums)

    def _learning(self, engine: Engine, group: Group) -> Learning | None:
        """Return what the engine can do of `learn`, if nothing else needs single models."""
        learners = self.algorithm.having("learn")
        others = self.algorithm.having("combine") + self.algorithm.having("upload")
        can = engine.learns and self._is_exact and not others
        if not can or len(learners) != 1:
            return None
        if type(learners[0]) is not Correction or not learners[0].clients:
            return None
        if "rounds" in self.algorithm.pace.breaks:
            return None  # clients make different numbers of steps
        reach = Period(group, self.algorithm).reach[0]
        return Learning(f"{learners[0].name}.z", float(reach)) if reach > 0 else None

    def _only_sums(self, learning: Learning | None) -> bool:
        """Return whether nothing but the sum of the clients' models is needed."""
        return self._is_exact and (learning is not None or not self._keeps_models)

    def _block(self, engine: Engine, learning: Learning | None) -> int:
        """Return how many clients an engine gets at a time, at most."""
        blocks, fewest = BLOCK, max(FEWEST, 2 * torch.get_num_threads())
        unwritten = self._only_sums(learning) and not self.state.clients
        if unwritten and not engine.holds_models:
            blocks *= UNWRITTEN
        return max(blocks // self.state.models.shape[1], fewest)

    def _upload(self, models: Tensor, groups: Sequence[Group], to: Indices) -> None:
        """Clients send what methods make of their models; groups are whole in this block."""
        for place in np.unique(to):
            rows, group = torch.from_numpy(np.flatnonzero(to == place)), groups[int(place)]
            sent = models[rows]
            received = self.state.held[self.state.rows_of_groups[group.number]]
            for method in self.algorithm.having("upload"):
                method.upload(
                    sent.cpu().numpy(), received.cpu().numpy(), Period(group, self.algorithm)
                )
            models[rows] = sent

    def _receive(
        self, models: Tensor, work: Work, clients: Indices, trained: Trained, block: slice
    ) -> None:
        """Models become what arrives of them. A few clients at a time, on every core."""
        if self._is_exact:
            return
        codec, (start, begin) = self.algorithm.codecs["up"], work.start
        residual = trained.rows["up.residual"][block] if codec.feeds_back else None

        def receive(few: slice) -> None:
            received = start[torch.from_numpy(begin[few])]
            change = models[few] - received
            if residual is not None:
                change += residual[few]
            draw = Draw(self.problem.seed, clients[few], work.last[few])
            arrived = torch.from_numpy(codec.through("up", change.cpu().numpy(), draw))
            if residual is not None:
                residual[few] = change - arrived.to(change)
            models[few] = received + arrived.to(received)

        size = max(1, CACHED // models.shape[1])
        parts = [slice(at, at + size) for at in range(0, len(models), size)]
        hands = min(torch.get_num_threads(), len(parts))
        if hands <= 1 or models.device.type != "cpu":
            for part in parts:
                receive(part)
            return
        with ThreadPoolExecutor(hands, "sdfeel-receive", torch.set_num_threads, (1,)) as pool:
            list(pool.map(receive, parts))

    def _keep(self, models: Tensor, groups: Sequence[Group], to: Indices, trained: Trained) -> None:
        """Single models, of groups that are whole in this block."""
        for place in np.unique(to):
            places = np.flatnonzero(to == place)
            trained.models[groups[int(place)].number] = models[places[0] : places[-1] + 1]


def cuts(groups: Indices, size: int, is_whole: bool) -> Iterator[slice]:
    """Clients that are handed to an engine together, `size` at most.

    No cut depends on the time or the machine. With `is_whole` all clients of a group, whose numbers
    `groups` are, come together, however many.
    """
    start = 0
    while start < len(groups):
        end = min(start + size, len(groups))
        if is_whole:
            end = int(np.searchsorted(groups, groups[end - 1], side="right"))
        yield slice(start, end)
        start = end
