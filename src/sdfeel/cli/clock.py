"""`sdfeel clock`: what a round costs in simulated seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sdfeel.cli.output import JsonFlag, console, print_json

if TYPE_CHECKING:
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.pace import Pace
    from sdfeel.algorithm.turns import Agenda

__all__ = ["clock"]

MOST_LINES = 70  # of a timeline as text


def clock(
    scheme: Annotated[str, typer.Option(help="sd-feel, hierfavg, fedavg, feel, ...")] = "sd-feel",
    tau1: Annotated[int, typer.Option(help="Local updates between uploads.")] = 2,
    tau2: Annotated[int, typer.Option(help="Uploads between exchanges.")] = 1,
    alpha: Annotated[int, typer.Option(help="Exchanges.")] = 5,
    profile: Annotated[str, typer.Option(help="Latency profile: a name or a TOML file.")] = "paper",
    averager: Annotated[str, typer.Option(help="How servers agree.")] = "paper",
    graph: Annotated[str, typer.Option(help="Graph of the servers.")] = "ring",
    servers: Annotated[int, typer.Option(help="Number of edge servers.")] = 10,
    clients: Annotated[int, typer.Option(help="Clients per server.")] = 5,
    parameters: Annotated[int, typer.Option(help="Numbers in a model.")] = 21840,
    up: Annotated[str, typer.Option(help="Codec from clients to servers.")] = "float32",
    down: Annotated[str, typer.Option(help="Codec from servers to clients.")] = "float32",
    between: Annotated[str, typer.Option(help="Codec between servers.")] = "float32",
    flops: Annotated[
        float | None, typer.Option(help="FLOPs of a local update, for profile `counted`.")
    ] = None,
    pace: Annotated[
        str, typer.Option(help="synchronous, deadline or asynchronous.")
    ] = "synchronous",
    deadline: Annotated[float | None, typer.Option(help="Seconds, of the last two.")] = None,
    seed: Annotated[int, typer.Option(help="By which devices are drawn.")] = 0,
    seconds: Annotated[
        float | None, typer.Option(help="Length of the timeline: two rounds, or three turns.")
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(help="Draw who does what when: FILE.png and FILE.svg.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Simulated seconds and bytes per round, what they go into, and who does what when."""
    from sdfeel.algorithm.algorithm import Algorithm
    from sdfeel.algorithm.schedule import Schedule
    from sdfeel.clock import load_profile
    from sdfeel.network import Network

    latency = load_profile(profile)
    if latency.flops_per_step is None:
        latency = latency.with_flops(flops or _paper_cnn_flops())
    algorithm = Algorithm.of(
        scheme,
        Network.build(graph, servers, clients),
        Schedule(tau1, tau2, alpha),
        profile=latency,
        parameters=parameters,
        averager=averager,
        codecs={"up": up, "down": down, "between": between},
        pace=_pace(pace, deadline),
        seed=seed,
    )
    shown = _Shown(algorithm, f"{scheme}, {pace}, profile {profile}", seconds, timeline)
    if shown.agenda is not None:
        _print_turns(shown.agenda, shown, as_json)
        return
    cost, sent = algorithm.round_cost(), algorithm.round_bytes()
    by_way = {"up": cost.upload, "down": cost.download, "between": cost.exchange}
    report = {
        "scheme": scheme,
        "profile": profile,
        "iterations_per_round": algorithm.schedule.tau,
        "seconds_per_round": cost.total,
        "compute": cost.compute,
        "upload": cost.upload,
        "exchange": cost.exchange,
        "download": cost.download,
        "seconds_by_way": by_way,
        "bytes_per_round": sent,
        **shown.shares,
    }
    if as_json:
        print_json(report)
        return
    table = Table("part of a round", "codec", "bytes", "seconds", "share")
    table.add_row("compute", "", "", f"{cost.compute:.6f}", f"{cost.compute / cost.total:.0%}")
    for way, codec in (("up", up), ("between", between), ("down", down)):
        seconds = by_way[way]
        share = f"{seconds / cost.total:.0%}"
        table.add_row(way, codec, f"{sent[way]:,.0f}", f"{seconds:.6f}", share)
    whole = f"{sum(sent.values()):,.0f}"
    table.add_row("a round", "", whole, f"{cost.total:.6f}", "", style="bold")
    console.print(f"{scheme}, {algorithm.schedule.tau} iterations a round, profile {profile}")
    console.print(table)
    shown.print()


def _pace(name: str, deadline: float | None) -> Pace:
    from sdfeel.algorithm.asynchronous import Asynchronous
    from sdfeel.algorithm.pace import Deadline
    from sdfeel.algorithm.paces import pace_of

    if name == "deadline" and deadline is not None:
        return Deadline(deadline)
    return Asynchronous(deadline) if name == "asynchronous" else pace_of(name)


def _print_turns(agenda: Agenda, shown: _Shown, as_json: bool) -> None:
    """Where there are no rounds: the time of each group, and what it gets done in it."""
    rows: list[dict[str, Any]] = []
    for group, (own, length) in enumerate(zip(agenda.groups, agenda.length, strict=True)):
        part = agenda.part(group)
        steps = [int(n) for n in part.last - part.first + 1]
        row = {"group": group, "clients": own.tolist(), "seconds": float(length), "steps": steps}
        rows.append(row)
    if as_json:
        print_json({"turns": rows, **shown.shares})
        return
    table = Table("group", "clients", "seconds of a turn", "steps of its clients")
    for row in rows:
        made = " ".join(str(count) for count in row["steps"])
        table.add_row(str(row["group"]), str(len(row["clients"])), f"{row['seconds']:.6f}", made)
    console.print(table)
    shown.print()


class _Shown:
    """The timeline of an algorithm, drawn if asked for."""

    def __init__(
        self, algorithm: Algorithm, title: str, seconds: float | None, file: Path | None
    ) -> None:
        from sdfeel.algorithm.pace import TurnPace
        from sdfeel.algorithm.timeline import timeline, waiting_share
        from sdfeel.errors import InputError

        if seconds is not None and not 0 < seconds < float("inf"):
            raise InputError("--seconds", seconds, "a number above 0")
        by_turns = algorithm.pace if isinstance(algorithm.pace, TurnPace) else None
        self.agenda = None if by_turns is None else by_turns.agenda(algorithm)
        if seconds is not None:
            self.seconds = seconds
        elif self.agenda is not None:
            self.seconds = 3 * float(self.agenda.length.max())
        else:
            self.seconds = 2 * algorithm.round_cost().total
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

    def print(self) -> None:
        """As text: all, or where they are many the servers."""
        from sdfeel.algorithm.timeline import SIGNS, as_text

        names = dict.fromkeys(span.who for span in self._spans)
        servers = [span for span in self._spans if span.who.startswith("server")]
        few = len(names) <= MOST_LINES or not servers
        signs = ", ".join(f"{sign} {does}" for does, sign in SIGNS.items())
        console.print(f"the first {self.seconds:.4g} s: {signs}", highlight=False)
        for line in as_text(self._spans if few else servers, self.seconds):
            console.print(line, highlight=False, markup=False)
        waits = f"servers wait {self.shares['servers_wait']:.0%} of the time for other clusters"
        console.print(f"{waits}, clients {self.shares['clients_wait']:.0%}", highlight=False)


def _paper_cnn_flops() -> float:
    from sdfeel.models import build, count_flops

    return count_flops(build("mnist-cnn", (1, 28, 28), 10, 0), (1, 28, 28), 10)
