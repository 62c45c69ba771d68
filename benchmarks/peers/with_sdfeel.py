"""sdfeel: the scheme fedavg, so that it averages as the others do."""

from __future__ import annotations

from workload import BATCH, RATE, STEPS, Rounds, arguments, data, network

import sdfeel


class Notes(sdfeel.callbacks.Callback):
    """Notes the end of every round."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def on_period(self, _progress: object) -> None:
        self.rounds.ended()


if __name__ == "__main__":
    chosen, notes = arguments(), Rounds()
    sdfeel.train(
        network(),
        data(chosen.clients, chosen.samples),
        network=sdfeel.Network.ring(servers=10, clients_per_server=chosen.clients // 10),
        schedule=sdfeel.Schedule(STEPS, 1, 1),
        scheme="fedavg",
        steps=STEPS * chosen.rounds,
        lr=RATE,
        batch_size=BATCH,
        evaluate_every=10**9,
        callbacks=[Notes(notes)],
    )
    notes.report()
