"""Callbacks: who is told how a run goes, and may end it.

    class Mine(sdfeel.callbacks.Callback):
        def on_row(self, row):
            print(row["iteration"], row["train_loss"])
            return row["train_loss"] < 0.1      # True ends the run here

    sdfeel.train(..., callbacks=[Mine(), sdfeel.callbacks.EarlyStopping("test_loss", patience=3)])

Packages of others are imported when a callback that needs them is made.
"""

from sdfeel.callbacks.callback import All, Callback, EarlyStopping, check_callbacks
from sdfeel.callbacks.progress import ProgressBar
from sdfeel.callbacks.trackers import CSV, MLflow, TensorBoard, WandB

__all__ = ["CSV", "All", "Callback", "EarlyStopping", "MLflow", "ProgressBar", "TensorBoard"]
__all__ += ["WandB", "check_callbacks"]
