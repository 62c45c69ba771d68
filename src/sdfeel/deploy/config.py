"""The deployment file: one TOML that every node reads."""

from __future__ import annotations

import hashlib
import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sdfeel.algorithm.methods.averaging import AveragingRule, Rule
from sdfeel.algorithm.methods.averaging import Name as RuleName
from sdfeel.algorithm.methods.codecs import Float32
from sdfeel.algorithm.methods.optimizers import OPTIMIZERS, Optimizer
from sdfeel.algorithm.methods.rates import RATES, Rate
from sdfeel.algorithm.paces import Synchronous
from sdfeel.algorithm.paces.asynchronous import Asynchronous
from sdfeel.deploy.config_check import check_deployment
from sdfeel.deploy.methods import (
    AveragerField,
    CodecField,
    CorrectionField,
    RuleField,
    ServerOptimizerField,
    bring_methods,
)
from sdfeel.deploy.pace import PaceField
from sdfeel.errors import InputError, closest
from sdfeel.tables import from_table
from sdfeel.toml import read_toml
from sdfeel.validation import validated

__all__ = ["Client", "Deployment", "Edge", "load_deployment"]

NAME_PATTERN = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
# A millisecond to eleven days: gRPC counts milliseconds in 32 bits.
Seconds = Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# Every iteration is counted; the steps of one period travel in 32 bits.
Steps = Annotated[int, Field(ge=1, le=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
PLACE = re.compile(r"(?P<host>[^:/\s\[\]]{1,253}|\[[0-9a-fA-F:.]{2,45}\]):(?P<port>[0-9]{1,5})")


def _is_address(text: str) -> str:
    """host:port, [::1]:port"""
    match = PLACE.fullmatch(text)
    if match is None or not 0 <= int(match["port"]) < 2**16:
        raise ValueError("host:port, such as 127.0.0.1:7001 or [::1]:7001, ports up to 65535")
    return text


def _is_path(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("a path has no NUL in it")
    return path


File = Annotated[Path, AfterValidator(_is_path)]
Host = Annotated[str, Field(pattern=r"^[^:/\s\[\]]{1,253}$")]
Address = Annotated[str, AfterValidator(_is_address)]
MaybeAddress = Annotated[str, AfterValidator(lambda text: text and _is_address(text))]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScheduleTable(_Table):
    """How long, and how often: K iterations, tau1, tau2 and alpha of the paper."""

    iterations: int = Field(ge=1, le=2**53)
    tau1: Steps = 1
    tau2: Steps = 1
    alpha: int = Field(default=1, ge=1, le=1000)
    averager: AveragerField = "paper"


class ModelTable(_Table):
    """The model that everybody starts from: a safetensors file made by `sdfeel provision model`."""

    initial: File = Path("initial.safetensors")


class GraphTable(_Table):
    """The links between edges: by name of a graph, or one by one."""

    kind: str = "ring"
    links: list[tuple[str, str]] | None = None


class Deadlines(_Table):
    """Seconds. A deadline is a timer: it runs out whether or not a message comes."""

    round: Seconds = Field(default=60.0, description="for the clients' uploads of a period")
    exchange: Seconds = Field(default=90.0, description="for a neighbour to reach an exchange")
    ping: Seconds = Field(default=5.0, description="silence after which a peer counts as gone")
    retry: Seconds = Field(
        default=1.0, description="at most, between two attempts to connect: half of it or more"
    )
    home: Seconds = Field(default=30.0, description="between two attempts to go back home")


class Limits(_Table):
    """What one node may ask of another."""

    connections: int = Field(
        default=1024, ge=1, le=2**16, description="streams that an edge serves at once"
    )
    values: int = Field(default=500_000_000, ge=1, le=2**40, description="of a model")
    magnitude: float = Field(default=1e9, gt=0, lt=1e30, description="of a value of a model")
    steps: int = Field(
        default=10, ge=1, le=10**6, description="of a client in a period without rounds, in tau1"
    )


class Security(_Table):
    """Where the certificates lie. Plain text is for trials on one machine only."""

    folder: File = Path("certificates")
    plaintext: bool = False


class StateTable(_Table):
    """What an edge keeps on its disk."""

    history: int = Field(default=6, ge=0, le=20, description="older checkpoints, for a rollback")


class Averaging(_Table):
    """How an edge averages its clients; see `sdfeel.algorithm.methods.averaging`.

    A rule of the user's is an import path, or a table of it as `name` and its settings.
    """

    rule: RuleField = "history-clip"
    limit: Positive = 10.0
    trim: float = Field(default=0.2, gt=0, lt=0.5)
    factor: Positive = 1.0
    bound: float = Field(default=100.0, ge=0, description="of an update, in others'; 0: none")

    @property
    def as_rule(self) -> AveragingRule:
        """The simulator's rule."""
        if isinstance(self.rule, AveragingRule):
            return self.rule
        return Rule(cast("RuleName", self.rule), self.limit, self.trim, self.factor)


class Local(_Table):
    """What clients run, by import path (`package.module:function`); each may name its own.

    All else here is the optimizer's, as in the `optimizer` of a run: its `name` and settings.
    """

    model_config = ConfigDict(extra="allow")

    trainer: str = "sdfeel.deploy.client.torch_trainer:trainer"
    model: str = ""
    data: str = ""
    loss: str = "torch.nn.functional:cross_entropy"
    metrics: dict[Name, str] | None = None  # accuracy, where the loss is cross-entropy
    lr: Positive = 0.01
    batch_size: Steps = 10
    options: dict[str, Any] = Field(default_factory=dict)
    node_config: dict[str, Any] = Field(default_factory=dict)  # of Flower apps, as train_config
    train_config: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_rule(self) -> Local:
        settings = {field.name for rule in OPTIMIZERS.values() for field in fields(rule)}
        for key, value in (self.model_extra or {}).items():
            if key not in settings | {"name"}:
                known = {*type(self).model_fields, *settings, "name"}
                raise InputError(f"local.{key}", value, f"unknown key; {closest(key, known)}")
        self.rule  # noqa: B018 - or what is wrong with it
        return self

    @property
    def rule(self) -> Optimizer:
        """What a client does with a gradient."""
        try:
            rule: Optimizer = from_table("local", self.model_extra or {}, OPTIMIZERS)
        except InputError as mistake:  # an optimizer does not know which table it stands in
            setting = mistake.field.rpartition(".")[2]
            field = "local.name" if setting in ("local", "name") else f"local.{setting}"
            raise InputError(field, mistake.value, mistake.remedy) from None
        return rule


class CodecsTable(_Table):
    """What travels, by way: a codec of `sdfeel.algorithm.methods.codecs` or an import path, or a
    table of its `name` and settings.
    """

    up: CodecField = Float32()
    down: CodecField = Float32()
    between: CodecField = Float32()


class EvaluationTable(_Table):
    """What is measured while training goes on, every so many iterations.

    holdout  import path of a function(edge, **local.options) with samples that no client holds
    samples  of a client's own on which it measures the model that it is given; 0: it does not
    """

    every: Steps | None = None  # a twentieth of the run
    holdout: str = ""
    samples: int = Field(default=1000, ge=0, le=2**31)


class Edge(_Table):
    """An edge server: where the others reach it, and where it listens if that differs.

    metrics_hosts  more host names for which requests to the metrics port may come
    """

    name: Name
    address: Address
    listen: MaybeAddress = ""
    metrics: MaybeAddress = ""
    metrics_hosts: list[Host] = Field(default_factory=list, max_length=100)
    allow: list[Name] | None = None


class Client(_Table):
    """A client: its edge, where it goes if that is lost, and how much data it holds."""

    name: Name
    edge: Name
    fallbacks: list[Name] = Field(default_factory=list)
    samples: int = Field(ge=1, le=2**40)


class Deployment(_Table):
    """The whole file."""

    name: Name
    seed: Seed = 0
    schedule: ScheduleTable
    pace: PaceField = Synchronous()
    edges: list[Edge] = Field(min_length=1, max_length=1000)  # their matrix is dense
    clients: list[Client] = Field(min_length=1, max_length=100_000)
    model: ModelTable = ModelTable()
    graph: GraphTable = GraphTable()
    deadlines: Deadlines = Deadlines()
    limits: Limits = Limits()
    security: Security = Security()
    state: StateTable = StateTable()
    averaging: Averaging = Averaging()
    server_optimizer: ServerOptimizerField = None
    correction: CorrectionField = None
    local: Local = Local()
    rate: dict[str, Any] = Field(default_factory=dict)
    codecs: CodecsTable = CodecsTable()
    evaluation: EvaluationTable = EvaluationTable()
    audit: bool = False
    trust: Literal["edges", "members"] = "edges"
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def digest(self) -> str:
        """Of the name, which says whose node it is; `trust.shared_settings` compares the rest."""
        return hashlib.sha256(self.name.encode()).hexdigest()[:16]

    @property
    def evaluate_every(self) -> int:
        """Iterations between two rows of a run folder."""
        return self.evaluation.every or max(1, self.schedule.iterations // 20)

    @property
    def most_steps(self) -> int:
        """That a client may make in a period; 0 in rounds, where it makes tau1."""
        is_free = isinstance(self.pace, Asynchronous)
        return self.limits.steps * self.schedule.tau1 if is_free else 0

    @property
    def lr(self) -> Rate:
        """eta_k: `local.lr` in the shape that the table `rate` gives it, as that of a run does."""
        if "eta" in self.rate:
            raise InputError("rate.eta", self.rate["eta"], "the rate itself is local.lr")
        rate: Rate = from_table("rate", {**self.rate, "eta": self.local.lr}, RATES)
        return rate

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
    content = read_toml(path, "deployment file")
    content.pop("folder", None)
    return parse_deployment(content, path.parent)


def parse_deployment(content: dict[str, Any], folder: Path) -> Deployment:
    """The same from a dictionary; paths count from `folder`."""
    content = bring_methods(content, folder)
    deployment = validated(Deployment, {**content, "folder": folder})
    check_deployment(deployment)
    return deployment
