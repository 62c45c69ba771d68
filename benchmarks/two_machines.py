"""One run over two machines, which are two network namespaces joined by a link of 1 Gbit/s.

    sudo -E python benchmarks/two_machines.py            # needs root, ip and tc; 1 minute
    sudo -E python benchmarks/two_machines.py 400 100    # 400 iterations, a link of 100 Mbit/s

`torchrun` starts a rank in each namespace, with one thread. The same run on one rank, with one
thread, comes before and after. Printed are client steps a second of both, their ratio, the bytes
that went over the link, and whether the models are the same to the last bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

NAMES = ("sdfeel-a", "sdfeel-b")
DEVICES = ("sdfeel-va", "sdfeel-vb")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
PORT = 29577
SETTINGS = (
    "network.servers=20", "network.clients_per_server=10", "data.partition=iid", "engine=fast",
    "schedule.tau1=5", "evaluation.servers=false", "evaluation.train_samples=100",
    "evaluation.test_samples=100",
)  # fmt: skip
LONGEST = 600  # seconds that a run may take


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def joined(megabits: float) -> Iterator[None]:
    """Two namespaces with a link of that rate in each direction."""
    try:
        for name in NAMES:
            call("ip", "netns", "add", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        ends = zip(NAMES, DEVICES, ADDRESSES, strict=True)
        peer = ("type", "veth", "peer", "name", DEVICES[1], "netns", NAMES[1])
        call("ip", "link", "add", DEVICES[0], "netns", NAMES[0], *peer)
        for name, device, address in ends:
            call("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            call("ip", "-n", name, "link", "set", device, "up")
            bucket = ("rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms")
            call("tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf", *bucket)
        yield
    finally:
        for name in NAMES:
            with suppress(subprocess.CalledProcessError):  # it was not made
                call("ip", "netns", "delete", name)


def sent() -> int:
    """Bytes that went over the link, in both directions."""
    total = 0
    for name, device in zip(NAMES, DEVICES, strict=True):
        words = ("ip", "-n", name, "-s", "-j", "link", "show", "dev", device)
        answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        total += int(json.loads(answer)[0]["stats64"]["tx"]["bytes"])
    return total


def command(out: Path, steps: int) -> list[str]:
    chosen = (*SETTINGS, f"steps={steps}", f"evaluation.every={steps}")
    words = [word for setting in chosen for word in ("--set", setting)]
    return ["-m", "sdfeel", "run", "mnist-5k", *words, "--out", str(out), "--json"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def rate_of(answer: str) -> float:
    found: dict[str, Any] = json.loads(answer[answer.index("{") :])
    return float(found["client_steps_per_second"])


def on_one(out: Path, steps: int) -> float:
    words = [sys.executable, *command(out, steps)]
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, env=environment(), timeout=LONGEST
    )
    return rate_of(done.stdout)


def on_two(out: Path, steps: int) -> float:
    machines = []
    for number, (name, device) in enumerate(zip(NAMES, DEVICES, strict=True)):
        torchrun = (
            "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--node-rank",
            str(number), "--master-addr", ADDRESSES[0], "--master-port", str(PORT),
        )  # fmt: skip
        words = ["ip", "netns", "exec", name, sys.executable, "-m", *torchrun]
        machines.append(
            subprocess.Popen(
                [*words, *command(out, steps)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment(), "GLOO_SOCKET_IFNAME": device},
            )
        )
    try:
        answers = [machine.communicate(timeout=LONGEST) for machine in machines]
    finally:
        for machine in machines:
            machine.kill()
    for machine, (_, errors) in zip(machines, answers, strict=True):
        if machine.returncode:
            raise SystemExit(errors[-2000:])
    return rate_of(answers[0][0])


def same(one: Path, other: Path) -> bool:
    here, there = (load_file(folder / "servers.safetensors") for folder in (one, other))
    return all((here[name] == there[name]).all() for name in here)


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    megabits = float(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with tempfile.TemporaryDirectory() as folder, joined(megabits):
        alone, both = Path(folder, "alone"), Path(folder, "both")
        before = on_one(alone, steps)
        begun = sent()
        together = on_two(both, steps)
        over = sent() - begun
        after = on_one(Path(folder, "again"), steps)
        rate = (before + after) / 2
        print(f"one rank:   {before:,.0f} and {after:,.0f} client steps a second, one thread")
        print(
            f"two ranks:  {together:,.0f}, {together / rate:.2f} times as many, {megabits:g} Mbit/s"
        )
        print(f"the link:   {over / 1e6:.1f} MB in {steps} iterations")
        print(f"models:     {'the same bits' if same(alone, both) else 'NOT the same'}")


if __name__ == "__main__":
    main()
