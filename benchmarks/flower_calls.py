"""What a call of a Flower app costs beyond the app's own work: `python benchmarks/flower_calls.py`.

The app gives back the record that it was sent, so that nothing but the call is measured: the model
into Flower's format, the message, and the model out of it. Beside it what cannot be saved: one copy
of the values there (`tobytes`) and one back, into new memory both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from sdfeel.flower.arrays import ArrayLayout, Piece  # first: it turns telemetry off
from sdfeel.flower.client import FlowerClient

# isort: split
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

CNN = ((10, 1, 5, 5), (10,), (20, 10, 5, 5), (20,), (50, 320), (50,), (10, 50), (10,))  # 21,840
LARGE = ((2000, 1500), (2000, 1500))  # 6,000,000
REPEATS = 300

app = ClientApp()


@app.train()
def train(msg: Message, context: object) -> Message:  # noqa: ARG001
    metrics = MetricRecord({"num-examples": 1})
    content = RecordDict({"arrays": msg.content["arrays"], "metrics": metrics})
    return Message(content=content, reply_to=msg)


def layout_of(shapes: tuple[tuple[int, ...], ...]) -> ArrayLayout:
    pieces, start = [], 0
    for number, shape in enumerate(shapes):
        pieces.append(Piece(f"layer{number}", "float32", shape, start))
        start += pieces[-1].size
    return ArrayLayout(pieces, start)


def median_seconds(repeats: int, *calls: Callable[[], object]) -> list[float]:
    """In turn, so that whatever else the machine does hits all of them."""
    took: list[list[float]] = [[] for _ in calls]
    for _ in range(repeats):
        for call, own in zip(calls, took, strict=True):
            begin = time.perf_counter()
            call()
            own.append(time.perf_counter() - begin)
    return [statistics.median(own) for own in took]


def main() -> None:
    print("   values   call ms   copy ms   call / copy")
    for shapes, repeats in ((CNN, REPEATS), (LARGE, REPEATS // 5)):
        layout = layout_of(shapes)
        client = FlowerClient(app, layout, "0", 0, 1)
        model = np.random.default_rng(0).normal(size=layout.size).astype(np.float32)
        assert np.array_equal(client.train(model, 1, {"lr": 0.1}).model, model)
        call, copy = median_seconds(
            repeats,
            lambda: client.train(model, 1, {"lr": 0.1}),  # noqa: B023
            lambda: np.empty_like(model).__setitem__(  # noqa: B023
                slice(None),
                np.frombuffer(model.tobytes(), np.float32),  # noqa: B023
            ),
        )
        print(f"{layout.size:9,}  {1e3 * call:8.3f}  {1e3 * copy:8.3f}  {call / copy:12.2f}")


if __name__ == "__main__":
    main()
