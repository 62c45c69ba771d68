"""A network that somebody edits on the page: what it would give, with the functions behind
`sdfeel topology` and `sdfeel clock`; and its settings as TOML and as commands.

It begins as the network of a run, of the deployment, or as the paper's ring. Edits are words, in
order: `+0-5` adds a link, `-0-1` cuts one, `s3` adds a server that is linked to server 3 and has as
many clients as usual, `m12-4` moves client 12 to server 4.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import networkx as nx

from sdfeel.algorithm.schedule import Schedule
from sdfeel.clock import LatencyProfile, load_profile
from sdfeel.errors import InputError
from sdfeel.network import AVERAGERS, Network
from sdfeel.network.graphs import liars_survived
from sdfeel.page.timeline import network_of, profile_of_run
from sdfeel.page.what_if import answered, number
from sdfeel.page.work import MOST_WORK, Budget
from sdfeel.simulation.settings import Settings

__all__ = ["Draft", "draft_of_deployment", "draft_of_run", "draft_of_the_paper", "edited"]

MOST_EDITS, MOST_SERVERS, MOST_CLIENTS = 400, 200, 10_000
NUMBERS = {"tau1": (1, 200), "tau2": (1, 50), "alpha": (1, 100)}
EDIT = re.compile(r"([+-])(\d{1,4})-(\d{1,4})|s(\d{1,4})|m(\d{1,5})-(\d{1,4})")
FLOW = 60  # numbers of a search for disjoint paths, for each server and link


@dataclass
class Draft:
    """What is edited.

    members  the clients of each server; samples: of each client
    names    of servers and clients where they have some; file: what it is written into
    """

    settings: Settings
    profile: LatencyProfile
    parameters: int
    members: list[list[int]]
    samples: list[float]
    links: set[tuple[int, int]]
    names: list[str] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls, network: Network, settings: Settings, profile: LatencyProfile, parameters: int
    ) -> Draft:
        """Begin with a network."""
        return cls(
            settings,
            profile,
            parameters,
            [list(members) for members in network.clusters.members],
            list(network.shares.samples),
            {(min(link), max(link)) for link in network.graph.edges()},
        )

    @property
    def network(self) -> Network:
        return Network(self.members, sorted(self.links), self.samples)

    def apply(self, word: str) -> None:
        """Carry out one edit; InputError says why it cannot be."""
        match = EDIT.fullmatch(word)
        if match is None:
            raise InputError("edits", word[:40], "+0-5, -0-1, s3 or m12-4")
        sign, a, b, near, client, target = match.groups()
        if sign:
            ends = sorted({self._server(a), self._server(b)})
            if len(ends) != 2:
                raise InputError("edits", word, "a link has two ends")
            link = (ends[0], ends[1])
            (self.links.add if sign == "+" else self.links.discard)(link)
        elif near:
            self._add_server(self._server(near))
        else:
            self._move(int(client), self._server(target))

    def _server(self, text: str) -> int:
        if int(text) >= len(self.members):
            raise InputError("edits", text, f"servers are numbered 0 to {len(self.members) - 1}")
        return int(text)

    def _add_server(self, near: int) -> None:
        usual = round(len(self.samples) / len(self.members))
        if len(self.members) >= MOST_SERVERS or len(self.samples) + usual > MOST_CLIENTS:
            remedy = f"at most {MOST_SERVERS} servers and {MOST_CLIENTS} clients"
            raise InputError("servers", len(self.members) + 1, remedy)
        first = len(self.samples)
        self.members.append(list(range(first, first + usual)))
        self.samples += [sum(self.samples) / first] * usual
        self.links.add((near, len(self.members) - 1))

    def _move(self, client: int, target: int) -> None:
        if client >= len(self.samples):
            raise InputError("edits", client, f"clients are numbered 0 to {len(self.samples) - 1}")
        home = next(members for members in self.members if client in members)
        home.remove(client)
        self.members[target].append(client)
        self.members[target].sort()


def draft_of_the_paper() -> Draft:
    """The paper's ring of ten servers with five clients each."""
    return Draft.of(Network.build("ring", 10, 5), Settings.of({}), load_profile("paper"), 21840)


def draft_of_run(drawn: Mapping[str, Any], config: Mapping[str, Any]) -> Draft:
    """The network of a run with its settings and its clock."""
    network = network_of(drawn, config)
    given = Settings.take_from(copy.deepcopy(dict(config)))
    settings = Settings.of({name: value for name, value in given.items() if value is not None})
    profile = profile_of_run(drawn, settings)
    return Draft.of(network, settings, profile, int(drawn.get("parameters", 21840)))


def draft_of_deployment(deployment: Any, profile: str | None) -> Draft:
    """The network of a deployment; the clock is that of a profile, the paper's if none is given."""
    from sdfeel.deploy.model.files import read_model
    from sdfeel.deploy.topology import Topology

    members, table = Topology(deployment).at(0), deployment.schedule
    vector = read_model(deployment.path(deployment.model.initial), constants=False).vector
    settings = Settings.of(
        {
            "schedule": Schedule(table.tau1, table.tau2, table.alpha),
            "averager": table.averager,
            "codecs": dict(deployment.codecs),
            "pace": deployment.pace,
        }
    )
    draft = Draft.of(members.network, settings, load_profile(profile or "paper"), vector.size)
    draft.names = list(members.edges)
    draft.clients = [
        client.name
        for edge in members.edges
        for client in deployment.clients
        if client.edge == edge
    ]
    return draft


def edited(draft: Draft, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer: numbers before and after all edits, and what to copy."""
    words = query.get("edits", "").split()
    if len(words) > MOST_EDITS:
        raise InputError("edits", len(words), f"at most {MOST_EDITS}")
    for word in words:
        draft.apply(word)
    before = dict(zip(NUMBERS, draft.settings.schedule.at(0), strict=True))
    numbers = {name: number(name, query, before[name], *NUMBERS[name]) for name in NUMBERS}
    averager = query.get("averager") or str(draft.settings.table().get("averager", "paper"))
    draft.settings = draft.settings.model_copy(
        update={"schedule": Schedule(**numbers), "averager": _averager(averager)}
    )
    shown = {
        "network": {
            "members": draft.members,
            "links": [list(link) for link in sorted(draft.links)],
            "names": draft.names,
            "clients": draft.clients,
        },
        "settings": {**numbers, "averager": averager},
        "averagers": list(AVERAGERS),
    }
    try:
        return {**shown, **_numbers(draft, averager), **_texts(draft, averager, numbers)}
    except InputError as problem:
        return {**shown, "problem": str(problem)}


def _averager(name: str) -> str:
    if name not in AVERAGERS:
        raise InputError("averager", name, f"one of {', '.join(AVERAGERS)}")
    return name


def _numbers(draft: Draft, averager: str) -> dict[str, Any]:
    network, settings = draft.network, draft.settings
    links = len(draft.links)
    Budget("editor").spend(network.servers, network.clients, links, settings)
    chosen = network.averager(averager, settings.schedule.at(0).alpha)
    numbers: dict[str, Any] = {
        "zeta": network.zeta,
        "contraction": chosen.contraction,
        "exchanges": chosen.exchanges,
        "liars_survived": _liars(network),
        "bytes_per_round": None,
        "seconds_per_round": None,
    }
    try:
        algorithm = settings.algorithm(network, _rates(draft), draft.parameters)
        if "rounds" not in algorithm.pace.breaks:
            numbers |= answered(algorithm, network, chosen, draft.profile)
    except InputError as problem:  # a profile with a rate for each link, say
        numbers["clock_problem"] = str(problem)
    return numbers


def _liars(network: Network) -> dict[str, int] | None:
    """None where the search for disjoint paths is more than a page works out at a time."""
    graph: nx.Graph = network.graph
    links, servers = graph.number_of_edges(), graph.number_of_nodes()
    least = min((degree for _, degree in graph.degree()), default=0)
    if FLOW * (servers + least**2) * (servers + links) > MOST_WORK:
        return None
    return liars_survived(graph)


def _rates(draft: Draft) -> LatencyProfile:
    """A new client has the usual device, a new link the usual rate."""
    count = len(draft.samples)
    changes: dict[str, Any] = {}
    for name in ("cpu", "client_server", "client_cloud"):
        rate = getattr(draft.profile, name)
        if isinstance(rate, tuple) and len(rate) < count:
            mean = sum(rate) / len(rate)
            changes[name] = (*rate, *[mean] * (count - len(rate)))
    return replace(draft.profile, **changes) if changes else draft.profile


def _texts(draft: Draft, averager: str, numbers: Mapping[str, int]) -> dict[str, str]:
    return {
        "toml": (
            _deployment_toml(draft) if draft.names else _experiment_toml(draft, averager, numbers)
        ),
        "command": _commands(draft, averager, numbers),
    }


def _experiment_toml(draft: Draft, averager: str, numbers: Mapping[str, int]) -> str:
    lines = [f'averager = "{averager}"', "", "[schedule]"]
    lines += [f"{name} = {value}" for name, value in numbers.items()]
    lines += ["", "[network]"]
    lines += [f"{key} = {value}" for key, value in _network_table(draft).items()]
    return "\n".join(lines) + "\n"


def _network_table(draft: Draft) -> dict[str, str]:
    """Keys of the table [network], as TOML and JSON write them."""
    return {
        "servers": str(len(draft.members)),
        "links": json.dumps([list(link) for link in sorted(draft.links)]),
        "clusters": json.dumps(draft.members),
    }


def _deployment_toml(draft: Draft) -> str:
    """What changes in a deployment file: the links, and the edge of each client."""
    names = [*draft.names, *(f"edge-{n}" for n in range(len(draft.names), len(draft.members)))]
    count = len(draft.clients)
    clients = [*draft.clients, *(f"client-{n}" for n in range(count, len(draft.samples)))]
    links = [[names[a], names[b]] for a, b in sorted(draft.links)]
    lines = ["[graph]", f"links = {json.dumps(links)}"]
    for name in names[len(draft.names) :]:
        lines += ["", "[[edges]]", f"name = {json.dumps(name)}", 'address = "HOST:PORT"']
    for name, members in zip(names, draft.members, strict=True):
        for client in members:
            lines += ["", "[[clients]]", f"name = {json.dumps(clients[client])}"]
            lines += [f"edge = {json.dumps(name)}", f"samples = {draft.samples[client]:.0f}"]
    return "\n".join(lines) + "\n"


def _commands(draft: Draft, averager: str, numbers: Mapping[str, int]) -> str:
    """Commands that print and use the same: no file is needed but the one that they write."""
    links = "".join(f"{a} {b}\\n" for a, b in sorted(draft.links))
    samples = [sum(draft.samples[client] for client in members) for members in draft.members]
    topology = ["sdfeel", "topology", "links.txt", "--servers", str(len(draft.members))]
    topology += ["--samples-per-server", ",".join(f"{count:g}" for count in samples)]
    topology += ["--averager", averager, "--alpha", str(numbers["alpha"])]
    lines = [f"printf {shlex.quote(links)} > links.txt", shlex.join(topology)]
    if not draft.names:
        settings = {f"network.{key}": value for key, value in _network_table(draft).items()}
        settings |= {"averager": averager}
        settings |= {f"schedule.{name}": str(value) for name, value in numbers.items()}
        run = ["sdfeel", "run"]
        for key, value in settings.items():
            run += ["--set", f"{key}={value}"]
        lines.append(shlex.join(run))
    return "\n".join(lines)
