"""Runs demo.toml here, then tells the accuracy and draws predicted and measured time.

python examples/deployment/demo.py [FOLDER]    everything goes to FOLDER (runs/deploy-demo)
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from deployment.one_stream import stream_seconds
from deployment.round_times import draw_times, round_times
from sdfeel.data import fetch, load
from sdfeel.deploy.operate.launch import final_model, launch
from sdfeel.deploy.topology import Topology
from sdfeel.engines.parameters import ParameterLayout

HERE = Path(__file__).resolve().parent


def main() -> None:
    """From a clean folder to accuracy and figure."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/deploy-demo")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("demo.toml", "demo_parts.py"):
        shutil.copy(HERE / name, folder / name)
    fetch("mnist-5k")
    start = time.monotonic()
    nodes = launch(folder / "demo.toml", fresh=True)
    topology = Topology(nodes.deployment)
    seconds = time.monotonic() - start
    print(f"{len(nodes.processes)} processes, {topology.periods} periods, {seconds:.0f} s")
    print(f"accuracy of the weighted mean of all edges: {accuracy(nodes.deployment.folder):.3f}")
    calibration = stream_seconds(folder / "calibration", 256 * 87_360) / 256
    clients = {client: nodes.lines(client) for client in topology.clients}
    times = round_times(topology, nodes.lines(topology.edges[0]), clients, calibration)
    measured = sorted(times.measured)[len(times.measured) // 2]
    print(f"seconds per round: measured {measured:.3f} (median), predicted {times.predicted:.3f}")
    draw_times(times, folder / "time-per-round.png")
    print(f"figure: {folder / 'time-per-round.png'}; logs: {folder / 'logs'}")


def accuracy(folder: Path) -> float:
    """Of the final model on images that no client has."""
    sys.path.insert(0, str(folder))
    import demo_parts

    from sdfeel.deploy.config import load_deployment

    mean, _ = final_model(load_deployment(folder / "demo.toml"))
    model = demo_parts.model()
    ParameterLayout.of(model).load(model, torch.from_numpy(mean.array()))
    model.eval()
    images = load("mnist-5k")
    with torch.no_grad():
        found = model(images.test_inputs).argmax(dim=1)
    return float((found == images.test_targets).float().mean())


if __name__ == "__main__":
    main()
