"""`sdfeel devices`: how the devices of a latency profile differ."""

from __future__ import annotations

from typing import Annotated

import typer

from sdfeel.cli.output import JsonFlag, console, plain_table, print_json

__all__ = ["devices"]


def devices(
    profile: Annotated[str, typer.Argument(help="A latency profile: a name or a TOML file.")],
    more: Annotated[str, typer.Argument(hidden=True, metavar="")] = "",
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 50,
    seed: Annotated[int, typer.Option(help="The seed by which devices are drawn.")] = 0,
    seconds: Annotated[
        float, typer.Option(help="For how long to look at devices that come and go at random.")
    ] = 3600.0,
    as_json: JsonFlag = False,
) -> None:
    """Show how the devices of a profile differ: speed, link and availability of every client."""
    from sdfeel.clock import Devices, load_profile
    from sdfeel.errors import InputError

    if more and profile == "show":  # `sdfeel devices show PROFILE`, as it was before
        profile, more = more, ""
    if more:
        raise InputError("profile", f"{profile} {more}", "one profile")
    if clients < 1:
        raise InputError("--clients", clients, "at least 1")
    if not 0 < seconds < float("inf"):
        raise InputError("--seconds", seconds, "a number above 0")
    latency_profile = load_profile(profile)
    drawn = (latency_profile.devices or Devices()).draw(clients, seed)
    presence = (
        None
        if latency_profile.availability is None
        else latency_profile.availability.draw(clients, seed)
    )
    on = [1.0 if presence is None else presence.share(c, seconds) for c in range(clients)]
    rows = [
        {"client": client, "class": name, "speed": speed, "link": link, "on": share}
        for client, (name, speed, link, share) in enumerate(
            zip(drawn.names, drawn.speed.tolist(), drawn.link.tolist(), on, strict=True)
        )
    ]
    ratio = float(drawn.speed.max() / drawn.speed.min())
    if as_json:
        print_json({"profile": profile, "seed": seed, "fastest_to_slowest": ratio, "devices": rows})
        return
    table = plain_table(
        "client", "class", ">speed", ">link", ">on", title=f"{profile}, seed {seed}"
    )
    for row in rows:
        numbers = [f"{row[key]:.3f}" for key in ("speed", "link")]
        table.add_row(str(row["client"]), str(row["class"]), *numbers, f"{100 * row['on']:.0f} %")
    console.print(table)
    console.print(
        f"speeds are parts of the profile's `cpu`, links of its rates; the fastest client computes "
        f"{ratio:.2f} times as fast as the slowest; `on` is the share of time"
    )
