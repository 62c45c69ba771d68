"""The deployment file: one TOML that every node reads."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from sdfeel.errors import InputError, closest
from sdfeel.network import AVERAGERS

__all__ = ["Client", "Deployment", "Edge", "load_deployment"]

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Address = Annotated[
    str, StringConstraints(pattern=r"^[^:/\s]+:\d{1,5}$|^\[[0-9a-fA-F:]+\]:\d{1,5}$")
]
MAX_FILE_BYTES = 8 * 2**20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScheduleTable(_Table):
    """How long, and how often: K iterations, tau1, tau2 and alpha of the paper."""

    iterations: int = Field(ge=1)
    tau1: int = Field(default=1, ge=1)
    tau2: int = Field(default=1, ge=1)
    alpha: int = Field(default=1, ge=1)
    averager: str = "paper"


class ModelTable(_Table):
    """The model that everybody starts from: a safetensors file made by `sdfeel provision model`."""

    initial: Path = Path("initial.safetensors")


class GraphTable(_Table):
    """The links between edges: by name of a graph, or one by one."""

    kind: str = "ring"
    links: list[tuple[str, str]] | None = None


class Deadlines(_Table):
    """Seconds. A deadline is a timer: it runs out whether or not a message comes."""

    round: float = Field(default=60.0, gt=0, description="for the clients' uploads of a period")
    exchange: float = Field(default=90.0, gt=0, description="for a neighbour to reach an exchange")
    ping: float = Field(default=5.0, gt=0, description="silence after which a peer counts as gone")
    retry: float = Field(default=1.0, gt=0, description="between two attempts to connect")
    home: float = Field(default=30.0, gt=0, description="between two attempts to go back home")


class Limits(_Table):
    """What one node may ask of another."""

    connections: int = Field(default=1024, ge=1, description="streams that an edge serves at once")
    values: int = Field(default=500_000_000, ge=1, description="of a model")
    magnitude: float = Field(default=1e9, gt=0, lt=1e30, description="of a value of a model")


class Security(_Table):
    """Where the certificates lie. Plain text is for trials on one machine only."""

    folder: Path = Path("certificates")
    plaintext: bool = False


class Averaging(_Table):
    """How an edge averages its clients; see `sdfeel.training.robust`."""

    rule: Literal["mean", "clip", "trimmed", "median"] = "mean"
    limit: float = Field(default=10.0, gt=0)
    trim: float = Field(default=0.2, gt=0, lt=0.5)
    bound: float = Field(default=100.0, ge=0, description="of an update, in others'; 0: none")


class Local(_Table):
    """What clients run, by import path (`package.module:function`); each may name its own."""

    trainer: str = "sdfeel.deploy.node.torch_trainer:trainer"
    model: str = ""
    data: str = ""
    lr: float = Field(default=0.01, gt=0)
    batch_size: int = Field(default=10, ge=1)
    options: dict[str, Any] = Field(default_factory=dict)


class Edge(_Table):
    """An edge server: where the others reach it, and where it listens if that differs."""

    name: Name
    address: Address
    listen: str = ""
    metrics: str = ""
    allow: list[Name] | None = None


class Client(_Table):
    """A client: its edge, where it goes if that is lost, and how much data it holds."""

    name: Name
    edge: Name
    fallbacks: list[Name] = Field(default_factory=list)
    samples: int = Field(ge=1)


class Deployment(_Table):
    """The whole file."""

    name: Name
    seed: int = 0
    schedule: ScheduleTable
    edges: list[Edge] = Field(min_length=1)
    clients: list[Client] = Field(min_length=1)
    model: ModelTable = ModelTable()
    graph: GraphTable = GraphTable()
    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()
    security: Security = Security()
    averaging: Averaging = Averaging()
    local: Local = Local()
    audit: bool = False
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def digest(self) -> str:
        """Of what all nodes must agree on; addresses, deadlines and paths may differ."""
        agreed = {
            "name": self.name,
            "seed": self.seed,
            "schedule": self.schedule.model_dump(),
            "edges": [edge.name for edge in self.edges],
            "clients": [(c.name, c.edge, c.samples) for c in self.clients],
            "graph": self.graph.model_dump(),
            "averaging": self.averaging.model_dump(),
        }
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()[:16]

    def path(self, relative: Path) -> Path:
        """A path of the file, which counts from the file's own folder."""
        return self.folder / relative

    def edge(self, name: str) -> Edge:
        for edge in self.edges:
            if edge.name == name:
                return edge
        raise InputError("edge", name, closest(name, (edge.name for edge in self.edges)))

    def client(self, name: str) -> Client:
        for client in self.clients:
            if client.name == name:
                return client
        raise InputError("client", name, closest(name, (client.name for client in self.clients)))


def load_deployment(path: str | Path) -> Deployment:
    """Reads and checks a deployment file; every mistake names its field."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("deployment file", str(path), f"at most {MAX_FILE_BYTES} bytes")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise InputError("deployment file", str(path), f"cannot be read: {problem}") from None
    content.pop("folder", None)
    return parse_deployment(content, path.parent)


def parse_deployment(content: dict[str, Any], folder: Path) -> Deployment:
    """The same from a dictionary; paths count from `folder`."""
    try:
        deployment = Deployment(**content, folder=folder)
    except ValidationError as problem:
        raise _explain(problem) from None
    _check(deployment)
    return deployment


def _explain(problem: ValidationError) -> InputError:
    """The first mistake in our own words; an unknown key gets the nearest right one."""
    mistakes = problem.errors()
    # A misspelt key also leaves the right one missing: say the former.
    first = next((m for m in mistakes if m["type"] == "extra_forbidden"), mistakes[0])
    place = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        table: type[BaseModel] = Deployment
        for step in first["loc"][:-1]:
            if isinstance(step, str):
                table = _inner(table, step)
        known = set(table.model_fields) - {"folder"}
        return InputError(place, first["input"], closest(str(first["loc"][-1]), known))
    return InputError(place, first["input"], first["msg"])


def _inner(table: type[BaseModel], name: str) -> type[BaseModel]:
    """The model of a table within a table, also inside a list."""
    kind = table.model_fields[name].annotation
    inside = getattr(kind, "__args__", (kind,))[0]
    return inside if isinstance(inside, type) and issubclass(inside, BaseModel) else table


def _check(deployment: Deployment) -> None:
    """What no single field can tell."""
    edges = [edge.name for edge in deployment.edges]
    clients = [client.name for client in deployment.clients]
    for kind, names in (("edges", edges), ("clients", clients)):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(kind, twice, "every name may appear once")
    for client in deployment.clients:
        for name in (client.edge, *client.fallbacks):
            if name not in edges:
                raise InputError(f"clients.{client.name}", name, closest(name, edges))
    for name in edges:
        if not any(client.edge == name for client in deployment.clients):
            raise InputError(f"edges.{name}", [], "an edge needs a client of its own at least")
    _check_schedule(deployment.schedule)
    if deployment.deadlines.exchange <= deployment.deadlines.round:
        raise InputError(
            "deadlines.exchange",
            deployment.deadlines.exchange,
            f"must exceed deadlines.round ({deployment.deadlines.round}): a neighbour may wait for "
            "its clients that long before it can exchange",
        )
    if deployment.security.plaintext:
        for edge in deployment.edges:
            for address in (edge.address, edge.listen or edge.address):
                if address.rpartition(":")[0] not in LOOPBACK:
                    raise InputError(
                        f"edges.{edge.name}",
                        address,
                        "plain text is for loopback only; remove security.plaintext",
                    )


def _check_schedule(schedule: ScheduleTable) -> None:
    if schedule.averager not in AVERAGERS:
        known = set(AVERAGERS) - {"exact"}
        raise InputError("schedule.averager", schedule.averager, closest(schedule.averager, known))
    if schedule.averager == "exact":
        raise InputError(
            "schedule.averager",
            "exact",
            "needs a cloud, and a deployment has none: all-reduce or finite-time give the same "
            "mean between neighbours",
        )
    if schedule.iterations % (schedule.tau1 * schedule.tau2):
        raise InputError(
            "schedule.iterations",
            schedule.iterations,
            f"must be a multiple of tau1*tau2 = {schedule.tau1 * schedule.tau2}",
        )
