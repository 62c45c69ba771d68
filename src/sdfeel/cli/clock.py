"""`sdfeel clock`: what a round costs in simulated seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sdfeel.cli.output import JsonFlag, console, plain_table, print_json

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.events import Event

__all__ = ["clock"]

MOST_LINES = 40  # of a timeline as text
WIDTH_OF_NAMES, FEWEST_SIGNS = 16, 40
PERIODS = 3  # of the slowest group, in the timeline of a pace without rounds


def clock(
    scheme: Annotated[str, typer.Option(help="sd-feel, hierfavg, fedavg, feel, ...")] = "sd-feel",
    tau1: Annotated[int, typer.Option(help="Local updates between two uploads.")] = 2,
    tau2: Annotated[int, typer.Option(help="Uploads between two inter-cluster aggregations.")] = 1,
    alpha: Annotated[int, typer.Option(help="Exchanges in an inter-cluster aggregation.")] = 5,
    profile: Annotated[str, typer.Option(help="Latency profile: a name or a TOML file.")] = "paper",
    averager: Annotated[str, typer.Option(help="How servers agree.")] = "paper",
    graph: Annotated[str, typer.Option(help="Graph of the servers.")] = "ring",
    servers: Annotated[int, typer.Option(help="Number of edge servers.")] = 10,
    clients_per_server: Annotated[
        int, typer.Option("--clients-per-server", help="Clients of each server.")
    ] = 5,
    parameters: Annotated[int, typer.Option(help="Number of values in a model.")] = 21840,
    up: Annotated[str, typer.Option(help="Codec from clients to servers.")] = "float32",
    down: Annotated[str, typer.Option(help="Codec from servers to clients.")] = "float32",
    between: Annotated[str, typer.Option(help="Codec between servers.")] = "float32",
    flops: Annotated[
        float | None, typer.Option(help="FLOPs of a local update, for the profile `counted`.")
    ] = None,
    pace: Annotated[
        str, typer.Option(help="synchronous, deadline or asynchronous.")
    ] = "synchronous",
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds of a period; for the paces deadline and asynchronous."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed by which devices are drawn.")] = 0,
    seconds: Annotated[
        float | None,
        typer.Option(help="Length of the timeline. Default: two rounds, or three periods."),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Draw who does what when: FILE.png and FILE.svg.")
    ] = None,
    as_json: JsonFlag = False,
    clients: Annotated[int | None, typer.Option(hidden=True)] = None,  # as it was called before
) -> None:
    """Show the simulated seconds and bytes of a round, and who does what when."""
    from sdfeel.algorithm.costs import round_cost
    from sdfeel.network import Network
    from sdfeel.simulation.settings import Settings

    given: dict[str, Any] = {"name": pace}
    if deadline is not None:
        given["deadline" if pace == "asynchronous" else "seconds"] = deadline
    settings = Settings.of(
        {
            "scheme": scheme,
            "schedule": {"tau1": tau1, "tau2": tau2, "alpha": alpha},
            "averager": averager,
            "codecs": {"up": up, "down": down, "between": between},
            "pace": given,
            "profile": profile,
            "seed": seed,
        }
    )
    latency = settings.latency
    if latency.flops_per_step is None:
        latency = latency.with_flops(flops or _paper_cnn_flops())
    network = Network.build(graph, servers, clients_per_server if clients is None else clients)
    algorithm = settings.algorithm(network, latency, parameters)
    shown = _Shown(algorithm, f"{scheme}, {pace}, profile {profile}", seconds, timeline)
    if "rounds" in algorithm.pace.breaks:
        _print_periods(shown, as_json)
        return
    cost = round_cost(algorithm)
    by_way = {name: cost.seconds[name] for name in ("upload", "download", "exchange")}
    seconds_by_way = dict(zip(("up", "down", "between"), by_way.values(), strict=True))
    waiting = cost.seconds["slack"] + cost.seconds["wait"]
    report = {
        "scheme": scheme,
        "profile": profile,
        "iterations_per_round": algorithm.schedule.tau,
        "seconds_per_round": cost.total,
        "compute": cost.seconds["compute"],
        **by_way,
        "wait": waiting,
        "seconds_by_way": seconds_by_way,
        "bytes_per_round": cost.bytes,
        **shown.shares,
    }
    if as_json:
        print_json(report)
        return
    table = plain_table("part of a round", "codec", ">bytes", ">seconds", ">share")

    def row(part: str, codec: str, sent: float | None, spent: float) -> None:
        count = "" if sent is None else f"{sent:,.0f}"
        table.add_row(part, codec, count, f"{spent:.6f}", f"{100 * spent / cost.total:.0f} %")

    row("compute", "", None, cost.seconds["compute"])
    ways = (("upload", "up", up), ("exchange", "between", between), ("download", "down", down))
    for part, way, codec in ways:
        row(part, codec, cost.bytes[way], seconds_by_way[way])
    if waiting > 0:
        row("wait", "", None, waiting)
    whole = f"{sum(cost.bytes.values()):,.0f}"
    table.add_row("a round", "", whole, f"{cost.total:.6f}", "", style="bold")
    console.print(f"{scheme}, {algorithm.schedule.tau} iterations a round, profile {profile}")
    console.print(table)
    shown.print()


def _print_periods(shown: _Shown, as_json: bool) -> None:
    """Where there are no rounds: the time of each group, and what it gets done in it."""
    algorithm = shown.algorithm
    rows: list[dict[str, Any]] = []
    for number, (event, at) in sorted(shown.first.items()):
        group = event.groups[at]
        collecting = sum(float(event.spans[name][at]) for name in ("compute", "upload", "slack"))
        steps = [int(count) for count in group.last - group.first + 1]
        members = algorithm.network.clusters.members[group.server]
        clients = [number] if algorithm.pace.groups == "clients" else list(members)
        rows.append({"group": number, "clients": clients, "seconds": collecting, "steps": steps})
    if as_json:
        print_json({"turns": rows, **shown.shares})
        return
    table = plain_table("group", ">clients", ">seconds of a period", "steps of its clients")
    for row in rows:
        made = " ".join(str(count) for count in row["steps"])
        table.add_row(str(row["group"]), str(len(row["clients"])), f"{row['seconds']:.6f}", made)
    console.print(table)
    shown.print()


class _Shown:
    """The timeline of an algorithm, drawn if asked for.

    first  of each group its first event, and the place of the group in it
    """

    def __init__(
        self, algorithm: Algorithm, title: str, seconds: float | None, file: Path | None
    ) -> None:
        from sdfeel.algorithm.costs import round_cost
        from sdfeel.algorithm.timeline import timeline, waiting_share
        from sdfeel.errors import InputError

        if seconds is not None and not 0 < seconds < float("inf"):
            raise InputError("--seconds", seconds, "a number above 0")
        self.algorithm = algorithm
        self.first: dict[int, tuple[Event, int]] = {}
        if "rounds" in algorithm.pace.breaks:
            self._find_first(algorithm)
            ends = [float(e.at - e.begun[at]) for e, at in self.first.values()]
            self.seconds = seconds or PERIODS * max(ends)
        else:
            self.seconds = seconds or 2 * round_cost(algorithm).total
        self._spans = timeline(algorithm, self.seconds)
        self.shares = {
            "servers_wait": waiting_share(self._spans, "server"),
            "clients_wait": waiting_share(self._spans, "client"),
        }
        if file is not None:
            from sdfeel.reports.figures import save_figure
            from sdfeel.reports.timeline import figure_of_timeline

            rows = [(span.who, span.does, span.begin, span.end) for span in self._spans]
            save_figure(figure_of_timeline(rows, self.seconds, title), file)

    def _find_first(self, algorithm: Algorithm) -> None:
        network, by_clients = algorithm.network, algorithm.pace.groups == "clients"
        groups = network.clients if by_clients else network.servers
        for event in algorithm.events():
            for at, group in enumerate(event.groups):
                self.first.setdefault(group.number, (event, at))
            if len(self.first) == groups:
                return

    def print(self) -> None:
        """Print lines of signs; only those of servers where clients would fill the screen."""
        from sdfeel.algorithm.timeline import SIGNS, as_text

        signs = ", ".join(f"{sign} {does}" for does, sign in SIGNS.items())
        console.print(f"the first {self.seconds:.4g} s: {signs}", highlight=False)
        room = max(console.width - WIDTH_OF_NAMES, FEWEST_SIGNS)
        lines = as_text(self._spans, self.seconds, room)
        if len(lines) > MOST_LINES:  # devices that differ: nothing folds
            servers = [span for span in self._spans if span.who.startswith("server")]
            lines = as_text(servers or self._spans, self.seconds, room)
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        waits = {
            kind: f"{100 * self.shares[f'{kind}_wait']:.0f} %" for kind in ("servers", "clients")
        }
        sentence = "servers wait {servers} of the time for other clusters, clients {clients}"
        console.print(sentence.format(**waits), highlight=False)


def _paper_cnn_flops() -> float:
    from sdfeel.models import build, count_flops

    return count_flops(build("mnist-cnn", (1, 28, 28), 10, 0), (1, 28, 28), 10)
