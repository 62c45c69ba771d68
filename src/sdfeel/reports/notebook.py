"""What a notebook shows: a table and a figure in one piece of HTML."""

from __future__ import annotations

import base64

import pandas as pd
from matplotlib.figure import Figure

from sdfeel.reports.figures import figure_bytes

__all__ = ["shown"]


def shown(table: pd.DataFrame, figure: Figure | None) -> str:
    """Nothing in it comes from elsewhere: the figure is in the page, and words are escaped."""
    rows = table.to_html(index=False, na_rep="", float_format=lambda value: f"{value:.4g}")
    if figure is None:
        return rows
    picture = base64.b64encode(figure_bytes(figure, "png")).decode()
    return f'{rows}<img alt="curves" src="data:image/png;base64,{picture}">'
