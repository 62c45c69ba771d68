"""sdfeel beside other libraries and loops of one's own, on the same client work, in turn.

    python benchmarks/peers/compare.py --folder FOLDER [--rounds 20] [--repeat 3] [--json]
        [--only NAME ...]

It makes an environment for each library in FOLDER (5 GB), runs the programs beside this file one
after the other, again and again, and prints for each: client steps a second and core (the median
over repetitions, with the least and the most), how many times sdfeel's are as many, memory of all
its processes at the most, what a further client takes beside its data, and seconds from the start
of the program to the end of its first round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
STEPS, SAMPLES, BYTES = 5, 50, 50 * 784 * 4  # of a client: steps in a round, samples, their bytes
WARM = 2  # rounds that do not count
MANY = 1000  # clients, for what a further one takes
POLL = 0.2  # seconds


@dataclass
class Peer:
    """A program, the environment that it needs, and what was measured of it."""

    name: str
    program: str
    packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    threads: int | None = None  # of torch, where fewer are quicker for so small a network
    rates: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    further: float | None = None
    problem: str = ""


PEERS = [
    Peer("sdfeel", "with_sdfeel.py", launcher=(sys.executable,)),
    Peer("plain loop, one thread", "loops.py", (TORCH,), ("--how", "plain"), threads=1),
    Peer("loop over two processes", "loops.py", (TORCH,), ("--how", "processes")),
    Peer("compiled vmap", "loops.py", (TORCH,), ("--how", "vmap")),
    Peer(
        "pfl-research 0.6.0, two workers",
        "with_pfl.py",
        (TORCH, "pfl==0.6.0"),
        launcher=("torchrun", "--nproc-per-node", "2"),
    ),
    Peer("FedLab 1.3.0, one thread", "with_fedlab.py", (TORCH, "fedlab==1.3.0"), threads=1),
    Peer("Flower 1.41.0 on Ray", "with_flower.py", (TORCH, "flwr[simulation]==1.41.0")),
]


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """Return the folder of programs of an environment with these packages; made once."""
    place = folder / "-".join(name.replace("[", "-").replace("]", "") for name in packages)
    ready = place / "ready"
    if not ready.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *packages], check=True)
        ready.touch()
    return place / "bin"


def tree_memory(root: int) -> int:
    """Return the proportional memory in bytes of a process and of those that it started."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
                )
            except (OSError, IndexError):
                continue
    family, grew = {root}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grew = bool(more)
    total = 0
    for pid in family:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024
    return total


def measure(peer: Peer, folder: Path, rounds: int, clients: int) -> tuple[list[float], float, int]:
    """Run a program once: the ends of its rounds, when it was started, its most memory."""
    command = list(peer.launcher)
    if peer.packages:
        programs = environment(folder, peer.packages)
        command = [str(programs / (command[0] if command else "python")), *command[1:]]
    size = ["--clients", str(clients), "--samples", str(SAMPLES), "--rounds", str(rounds)]
    command += [str(HERE / peer.program), *peer.arguments, *size]
    settings = {"OMP_WAIT_POLICY": "PASSIVE", "PYTHONWARNINGS": "ignore"}
    settings |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    settings |= {"OMP_NUM_THREADS": str(peer.threads)} if peer.threads else {}
    start, most = time.clock_gettime(time.CLOCK_MONOTONIC), 0
    output = folder / "output"
    with output.open("w+") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **settings}
        )
        while process.poll() is None:
            most = max(most, tree_memory(process.pid))
            time.sleep(POLL)
    lines = output.read_text(errors="replace").splitlines()
    reports = [line for line in lines if line.startswith("REPORT ")]
    if not reports:
        raise RuntimeError((lines or ["no output"])[-1][:200])
    return json.loads(reports[-1].removeprefix("REPORT "))["ends"], start, most


def repeat(peer: Peer, folder: Path, rounds: int, clients: int) -> None:
    """Measure a peer once more; one that fails says why, and is not asked again."""
    if peer.problem:
        return
    try:
        ends, start, memory = measure(peer, folder, rounds, clients)
    except (RuntimeError, OSError, subprocess.CalledProcessError) as problem:
        peer.problem = str(problem)
        return
    seconds = ends[-1] - ends[WARM - 1]
    peer.rates.append((len(ends) - WARM) * clients * STEPS / seconds / cores())
    peer.first.append(ends[0] - start)
    peer.memory.append(memory / 1e6)


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def table(clients: int) -> list[dict[str, object]]:
    """Return a row for each peer."""
    best = statistics.median(PEERS[0].rates)
    rows: list[dict[str, object]] = []
    for peer in PEERS:
        row: dict[str, object] = {"peer": peer.name}
        if peer.problem:
            rows.append(row | {"problem": peer.problem})
            continue
        rate = statistics.median(peer.rates)
        rows.append(
            row
            | {
                "client_steps_per_second_and_core": round(rate),
                "least": round(min(peer.rates)),
                "most": round(max(peer.rates)),
                "sdfeel_times": round(best / rate, 1),
                "megabytes": round(statistics.median(peer.memory)),
                "bytes_per_further_client": peer.further,
                "seconds_to_first_round": round(statistics.median(peer.first), 1),
                "clients": clients,
            }
        )
    return rows


def main() -> None:
    """Measure all peers in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for environments; kept")
    parser.add_argument("--rounds", type=int, default=20, help="of the slow ones, in a repetition")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--only", nargs="*", help="peers beside sdfeel, by part of their names")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    if chosen.only is not None:
        PEERS[1:] = [peer for peer in PEERS[1:] if any(part in peer.name for part in chosen.only)]
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for _ in range(chosen.repeat):
        for peer in PEERS:
            rounds = chosen.rounds * (10 if peer is PEERS[0] else 1)
            repeat(peer, chosen.folder, rounds, chosen.clients)
        PEERS[1:] = PEERS[:0:-1]  # in the other order next time
    for peer in PEERS:
        if not peer.problem:
            _, _, most = measure(peer, chosen.folder, WARM, MANY)
            more = most - statistics.median(peer.memory) * 1e6
            peer.further = round(more / (MANY - chosen.clients) - BYTES)
    rows = table(chosen.clients)
    if chosen.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
