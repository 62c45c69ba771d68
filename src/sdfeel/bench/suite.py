"""What `sdfeel bench` measures, and the numbers that it answers with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sdfeel.bench.field import Measured, Spread, cores, measure, ratio, spread
from sdfeel.bench.jobs import SHAPES, TAU1, Job, make_model
from sdfeel.bench.machine import describe_machine, load
from sdfeel.bench.runs import ranks_against_one
from sdfeel.bench.zoo import LARGE, LARGE_TAU1, ZOO
from sdfeel.models import count_flops
from sdfeel.network import AVERAGERS, Network
from sdfeel.simulation.engines.choose import ENGINES

__all__ = ["FULL", "KEYS", "QUICK", "Extent", "run_bench"]

RATIOS = (
    "fast_vs_loop",
    "fast_vs_loop_all_cores",
    "cifar_fast_vs_loop",
    "mlp_fast_vs_loop",
    "growth_10000",
    "rss_gb_10000",
    "ranks_2_vs_1",
    "share_of_matmul",
)
KEYS = (*RATIOS, "auto_vs_loop")
# Setting -> (key of its ratio to the loop, its model, what it is, the same in short)
SETTINGS = {
    "mnist": ("fast_vs_loop", "mnist-cnn", "CNN of 21,840 parameters on 1x28x28", "CNN, 1x28x28"),
    "cifar": (
        "cifar_fast_vs_loop",
        "cifar-cnn",
        "CNN of 21,840 parameters on 3x32x32",
        "CNN, 3x32x32",
    ),
    "mlp": ("mlp_fast_vs_loop", "mlp", "MLP 784-200-10", "MLP 784-200-10"),
}
LOOP, LOOP_ALL, LOOP_OFF = "plain loop", "plain loop, all cores", "plain loop, oneDNN off"
ONE_THREAD, PRODUCT, PRODUCT_ONE = "fast, 1 thread", "matrix product", "matrix product, 1 thread"
# Few samples a client where clients are many, so that memory is that of the models.
FEW = 12


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    seconds  about how long one measurement of one contender takes
    """

    repetitions: int = 7
    seconds: float = 0.6
    clients: int = 50
    settings: tuple[str, ...] = ("mnist", "cifar", "mlp")
    engines: tuple[str, ...] = tuple(reversed(ENGINES))
    all_engines_everywhere: bool = True  # else only where the setting is the first
    variants: bool = True  # also the loop without oneDNN, and engine and product on one thread
    growth: tuple[int, ...] = (10, 50, 200, 1000, 10_000)
    servers: tuple[int, ...] = (2, 10, 50, 100, 500)
    server_clients: int = 1000
    topologies: tuple[int, ...] = (10, 100, 1000)
    widths: tuple[int, ...] = (25, 50, 100, 200, 400, 800)
    periods: tuple[int, ...] = (1, 2, 5, 20)
    memory: tuple[int, int] | None = (10_000, 100)  # clients, servers
    zoo: tuple[str, ...] = tuple(ZOO)  # models for "auto" against the plain loop on all cores
    rank_steps: int = 120  # 0: no runs over ranks
    profile_steps: int = 100  # 0: no profile


FULL = Extent()
QUICK = Extent(
    repetitions=5,
    seconds=0.2,
    engines=("fast",),
    all_engines_everywhere=False,
    variants=False,
    growth=(),
    servers=(),
    topologies=(),
    widths=(),
    periods=(),
    memory=None,
    rank_steps=0,
    profile_steps=0,
)


def run_bench(extent: Extent = FULL, say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Measure all of `extent`: the keys of `KEYS`, and `details`. What was not measured is None."""
    machine = describe_machine()
    ratios: dict[str, Spread | None] = dict.fromkeys(RATIOS)
    details: dict[str, Any] = {"machine": machine, "settings": {}}
    for number, name in enumerate(extent.settings):
        say(f"{SETTINGS[name][2]}: loop, engines, matrix product")
        every = extent.all_engines_everywhere or number == 0
        details["settings"][name] = _speed(name, extent, every, ratios)
    auto: dict[str, float | None] | None = None
    if extent.zoo:
        auto, details["zoo"] = _zoo(extent, say)
    if extent.growth:
        say("growth with clients")
        details["clients"], ratios["growth_10000"] = _clients(extent)
    if extent.servers:
        say("growth with servers")
        details["servers"] = _servers(extent)
    if extent.topologies:
        details["topology"] = {str(count): topology_seconds(count) for count in extent.topologies}
    if extent.widths:
        say("growth with the model's size")
        details["widths"] = _widths(extent)
    if extent.periods:
        say("growth with tau1")
        details["periods"] = _periods(extent)
    if extent.memory:
        say("memory")
        details["memory"], ratios["rss_gb_10000"] = _memory(*extent.memory)
    if extent.rank_steps:
        say("two ranks against one")
        details["ranks"] = ranks_against_one(extent.rank_steps, min(extent.repetitions, 5))
        ratios["ranks_2_vs_1"] = spread(details["ranks"]["ratios"])
    if extent.profile_steps:
        say("what a run with 1,000 clients spends its time on")
        details["profile"] = _profile(extent.profile_steps)
    machine["load_after"] = round(load(), 2)
    details["ratios"] = {key: found.as_dict() for key, found in ratios.items() if found}
    numbers = {key: found.median if found else None for key, found in ratios.items()}
    return {**numbers, "auto_vs_loop": auto, "details": details}


def _jobs(*jobs: Job) -> list[dict[str, Any]]:
    return [job.as_dict() for job in jobs]


def _speed(
    name: str, extent: Extent, every: bool, ratios: dict[str, Spread | None]
) -> dict[str, Any]:
    """Loop, engines and matrix product on one setting; fills in the ratios that it gives."""
    key, model, about, short = SETTINGS[name]
    base = Job("plain-loop", model=model, clients=extent.clients)
    processes = min(cores(), extent.clients)
    threads = cores()
    teams = {LOOP: _jobs(base)}
    if every:
        share = replace(base, clients=extent.clients // processes)
        teams[LOOP_ALL] = _jobs(*[share] * processes)
    if every and extent.variants:
        teams[LOOP_OFF] = _jobs(replace(base, kind="plain-loop-onednn-off"))
        teams[PRODUCT_ONE] = _jobs(replace(base, kind="matmul"))
        teams[ONE_THREAD] = _jobs(replace(base, kind="fast"))
    if every or extent.variants:
        teams[PRODUCT] = _jobs(replace(base, kind="matmul", threads=threads))
    for engine in extent.engines if every else ("fast",):
        teams[engine] = _jobs(replace(base, kind=engine, threads=threads))
    found = measure(teams, extent.repetitions, extent.seconds)
    flops = count_flops(make_model(base), SHAPES[model], base.batch_size)
    ratios[key] = ratio(found["fast"], found[LOOP])
    if name == "mnist":
        ratios["share_of_matmul"] = ratio(found["fast"], found[PRODUCT], flops)
        if every:
            ratios["fast_vs_loop_all_cores"] = ratio(found["fast"], found[LOOP_ALL])
    rows = {who: _row(who, found, flops) for who in _in_order(found)}
    return {
        "about": about,
        "short": short,
        "clients": extent.clients,
        "flops_per_step": flops,
        "rows": rows,
    }


def _in_order(found: Mapping[str, Measured]) -> list[str]:
    order = [LOOP, LOOP_OFF, LOOP_ALL, *ENGINES, ONE_THREAD, PRODUCT_ONE, PRODUCT]
    return sorted(found, key=order.index)


def _row(who: str, found: Mapping[str, Measured], flops: float) -> dict[str, Any]:
    """One contender in numbers; a ratio is None where its other side was not measured."""
    own = found[who]
    if own.unsupported:
        return {"unsupported": own.unsupported}
    row: dict[str, Any] = {"first_start_seconds": own.first_start, "peak_gb": own.peak_gb}
    if who in (PRODUCT, PRODUCT_ONE):
        return row | {"gflops": spread([rate / 1e9 for rate in own.rates]).as_dict()}
    compared = {
        "vs_loop": (LOOP, 1.0),
        "vs_loop_all_cores": (LOOP_ALL, 1.0),
        "share_of_matmul": (PRODUCT, flops),
    }
    row["steps_per_second"] = spread(own.rates).as_dict()
    # Hardly changes when other programs take the cores away: a check on a busy machine.
    pairs = zip(own.units, own.cpu_seconds, strict=True)
    row["steps_per_cpu_second"] = spread([n / max(s, 1e-9) for n, s in pairs]).as_dict()
    for key, (other, factor) in compared.items():
        against = ratio(own, found[other], factor) if other in found else None
        row[key] = against.as_dict() if against else None
    return row


def _fast(extent: Extent, jobs: Mapping[str, Job]) -> dict[str, Measured]:
    return measure({k: _jobs(job) for k, job in jobs.items()}, extent.repetitions, extent.seconds)


def _clients(extent: Extent) -> tuple[dict[str, Any], Spread | None]:
    """Time of a client step of the fast engine; the same data at every client."""
    base = Job("fast", threads=cores(), samples=FEW)
    jobs = {str(n): replace(base, clients=n, servers=max(2, n // 100)) for n in extent.growth}
    found = _fast(extent, jobs)
    rows = {
        clients: _unless_unsupported(own, lambda own: {
            "microseconds_per_step": spread([1e6 / rate for rate in own.rates]).as_dict(),
            "peak_gb": own.peak_gb,
        })
        for clients, own in found.items()
    }  # fmt: skip
    least, most = str(extent.clients), str(extent.growth[-1])
    return rows, ratio(found[least], found[most]) if least in found else None


def _zoo(
    extent: Extent, say: Callable[[str], None]
) -> tuple[dict[str, float | None], dict[str, Any]]:
    """Model -> what "auto" does against a plain loop with a process on every core."""
    ratios: dict[str, float | None] = {}
    details: dict[str, Any] = {}
    for name in extent.zoo:
        say(f"{name}: auto against the loop on all cores")
        clients, tau1 = max(LARGE.get(name, 16), cores()), LARGE_TAU1 if name in LARGE else TAU1
        base = Job("plain-loop", model=name, clients=clients, samples=20, servers=2, tau1=tau1)
        share = replace(base, clients=clients // cores())
        teams = {
            LOOP_ALL: _jobs(*[share] * cores()),
            "auto": _jobs(replace(base, kind="auto", threads=cores())),
        }
        found = measure(teams, max(3, extent.repetitions - 2), extent.seconds)
        against = ratio(found["auto"], found[LOOP_ALL])
        ratios[name] = against.median if against else None
        details[name] = {
            "parameters": sum(p.numel() for p in make_model(base).parameters()),
            "ratio": against.as_dict() if against else None,
            "engine": found["auto"].engine,
            "loop_steps_per_second": spread(found[LOOP_ALL].rates).as_dict(),
        }
    return ratios, details


def _servers(extent: Extent) -> dict[str, Any]:
    """What aggregation (intra, exchange, broadcast) adds to tau1 local updates."""
    base = Job("fast", threads=cores(), samples=FEW, clients=extent.server_clients, aggregate=True)
    found = _fast(extent, {str(n): replace(base, servers=n) for n in extent.servers})

    def row(own: Measured) -> dict[str, Any]:
        rounds = [n / (base.tau1 * base.clients) for n in own.units]
        rest = [part["aggregation"] for part in own.parts]
        parts = list(zip(own.seconds, rest, rounds, strict=True))
        return {
            "local_ms_per_round": spread([1e3 * work / n for work, _, n in parts]).as_dict(),
            "aggregation_ms_per_round": spread([1e3 * rest / n for _, rest, n in parts]).as_dict(),
            "local_share": spread([work / (work + rest) for work, rest, _ in parts]).as_dict(),
        }

    return {servers: _unless_unsupported(own, row) for servers, own in found.items()}


def _unless_unsupported(own: Measured, row: Callable[[Measured], dict[str, Any]]) -> dict[str, Any]:
    return {"unsupported": own.unsupported} if own.unsupported else row(own)


def _widths(extent: Extent) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for width in extent.widths:
        base = Job("plain-loop", model="mlp", width=width, clients=extent.clients)
        teams = {
            LOOP: _jobs(base),
            "fast": _jobs(replace(base, kind="fast", threads=cores())),
            PRODUCT: _jobs(replace(base, kind="matmul", threads=cores())),
        }
        found = measure(teams, extent.repetitions, extent.seconds)
        model = make_model(base)
        flops = count_flops(model, SHAPES["mlp"], base.batch_size)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        rows[str(width)] = {
            "parameters": parameters,
            "flops_per_step": flops,
            LOOP: _row(LOOP, found, flops),
            "fast": _row("fast", found, flops),
        }
    return rows


def _periods(extent: Extent) -> dict[str, Any]:
    """tau1 -> setting -> the fast engine: a client that stays longer is loaded less often."""
    rows: dict[str, Any] = {str(tau1): {} for tau1 in extent.periods}
    for name in ("mnist", "mlp"):
        _, model, _, short = SETTINGS[name]
        for tau1, row in rows.items():
            base = Job("plain-loop", model=model, clients=extent.clients, tau1=int(tau1))
            fast = replace(base, kind="fast", threads=cores())
            teams = {LOOP: _jobs(base), "fast": _jobs(fast)}
            found = measure(teams, extent.repetitions, extent.seconds)
            row[short] = _row("fast", found, 0.0)
    return rows


def _memory(clients: int, servers: int) -> tuple[dict[str, Any], Spread]:
    """20 iterations through `sdfeel.train`, with images as bytes and as float32."""
    rows = {"bytes": _peak(clients, servers, True), "float32": _peak(clients, servers, False)}
    return rows, spread([rows["bytes"]["peak_gb"]])


def _peak(clients: int, servers: int, pixels: bool) -> dict[str, Any]:
    """One such run, in a process of its own."""
    job = Job(
        "train", threads=cores(), clients=clients, servers=servers, samples=FEW, pixels=pixels
    )
    found = measure({"train": _jobs(job)}, 1, 0, segments=20 // job.tau1)["train"]
    parameters = sum(parameter.numel() for parameter in make_model(job).parameters())
    return {
        "clients": clients,
        "servers": servers,
        "peak_gb": found.peak_gb,
        "parameters_gb": 4 * clients * parameters / 1e9,
        "data_gb": (1 if pixels else 4) * clients * FEW * 28 * 28 / 1e9,
        "steps_per_second": found.rates[0],
    }


def _profile(steps: int) -> dict[str, Any]:
    """What a run with 1,000 clients spends its time on, with an evaluation every 50 iterations."""
    job = Job("train", threads=cores(), clients=1000, servers=100)
    own = measure({"train": _jobs(job)}, 1, 0, segments=steps // job.tau1)["train"]
    parts = {name: seconds for name, seconds in own.parts[0].items() if name != "work"}
    shares = {name: seconds / own.seconds[0] for name, seconds in parts.items()}
    about = {"clients": job.clients, "servers": job.servers, "steps": steps}
    return {**about, "steps_per_second": own.rates[0], "shares": shares}


def topology_seconds(servers: int) -> dict[str, float]:
    """Seconds for the graph, P and zeta, and each averager with its operator."""
    begin = time.perf_counter()
    network = Network.build("ring", servers)
    parts = {"graph": time.perf_counter() - begin}
    begin = time.perf_counter()
    assert network.mixing.zeta < 1  # noqa: S101 - connected
    parts["mixing matrix"] = time.perf_counter() - begin
    for name in AVERAGERS:
        begin = time.perf_counter()
        averager = network.averager(name, 5)
        assert averager.operator.shape == (servers, servers)  # noqa: S101
        parts[name] = time.perf_counter() - begin
    return parts
