"""What a notebook shows: a table and a figure in one piece of HTML."""

from __future__ import annotations

import base64

import pandas as pd
from matplotlib.figure import Figure

from sdfeel.reports.figures import figure_bytes
from sdfeel.reports.rendering import html_table


def shown(table: pd.DataFrame, figure: Figure | None) -> str:
    """Write table and figure as HTML that loads nothing from elsewhere, every word escaped."""
    rows = html_table([{str(k): v for k, v in row.items()} for row in table.to_dict("records")])
    if figure is None:
        return rows
    picture = base64.b64encode(figure_bytes(figure, "png")).decode()
    return f'{rows}<img alt="curves" src="data:image/png;base64,{picture}">'
