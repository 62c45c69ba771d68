"""`sdfeel provision`: the CA of a deployment, its certificates, and the first model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from sdfeel.cli.deploy import File, record_action, require_extra
from sdfeel.cli.output import say
from sdfeel.errors import InputError

if TYPE_CHECKING:
    from sdfeel.deploy.config import Deployment
    from sdfeel.deploy.trust.authority import Authority

__all__ = ["app"]

OLD = "old-form"
HELP = ("-h", "--help")


class _Verbs(TyperGroup):
    """Subcommands; `sdfeel provision FILE`, as it was before there were any, is one of them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_old = args and args[0] not in (*self.commands, *HELP)
        # A word that is no file and looks like none is a misspelt verb.
        if is_old and (args[0].startswith("-") or "." in args[0] or Path(args[0]).exists()):
            args = [OLD, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_Verbs,
    help="Make, renew and revoke certificates; write the first model.",
    no_args_is_help=True,
)
Hours = Annotated[
    float | None,
    typer.Option(help="How long certificates are valid (default: as before; 24 at first)."),
]


@app.command()
def init(
    file: File,
    hours: Hours = None,
    passphrase: Annotated[
        bool,
        typer.Option(
            help="Protect ca.key with a passphrase (SDFEEL_CA_PASSPHRASE, or you are asked)."
        ),
    ] = False,
) -> None:
    """Make the CA, and a certificate for every node of the file and for the operator."""
    deployment = _load(file)
    if _has_authority(deployment):
        remedy = f"has a CA already: `sdfeel provision renew {file}`"
        raise InputError("certificates", str(_folder(deployment)), remedy)
    key = _passphrase(deployment, is_new=passphrase)
    _issue(deployment, hours, key=key)


@app.command("node")
def renew_node(
    file: File,
    name: Annotated[str, typer.Argument(help="An edge or client of the file, or `operator`.")],
    hours: Hours = None,
) -> None:
    """Make a new certificate for one node, also for one that was revoked."""
    deployment = _load(file)
    _need_authority(deployment, file)
    _issue(deployment, hours, only=name)


@app.command()
def renew(file: File, hours: Hours = None) -> None:
    """Make new certificates for all nodes of the file that are not revoked."""
    deployment = _load(file)
    _need_authority(deployment, file)
    _issue(deployment, hours)


@app.command("revoke")
def revoke_nodes(
    file: File,
    nodes: Annotated[list[str], typer.Argument(help="ROLE/NAME, such as client/c3.")],
) -> None:
    """Revoke all certificates that nodes ever got."""
    deployment = _load(file)
    pairs = [_role_and_name(text) for text in nodes]
    _authority(deployment).revoke(pairs)
    record_action(deployment, "revoked", nodes=nodes)
    revoked = _folder(deployment) / "revoked.pem"
    typer.echo(f"revoked {', '.join(nodes)}; copy {revoked} to every node")


@app.command()
def protect(file: File) -> None:
    """Protect ca.key with a (new) passphrase: SDFEEL_CA_PASSPHRASE, or you are asked."""
    deployment = _load(file)
    _need_authority(deployment, file)
    _protect(deployment)


@app.command("model")
def write_model(file: File) -> None:
    """Write the first model, from local.model and the seed; certificates stay as they are."""
    from sdfeel.deploy.client.torch_trainer import write_initial

    deployment = _load(file)
    path = write_initial(deployment)
    record_action(deployment, "first-model", path=str(path))
    typer.echo(f"first model in {path}")


@app.command(OLD, hidden=True)
def old_form(
    file: File,
    hours: Hours = None,
    node: Annotated[str | None, typer.Option()] = None,
    revoke: Annotated[list[str] | None, typer.Option()] = None,
    model: Annotated[bool, typer.Option()] = False,
    passphrase: Annotated[bool, typer.Option()] = False,
) -> None:
    """Do what flags said before there were subcommands."""
    deployment = _load(file)
    is_new = not _has_authority(deployment)
    if revoke:
        _name_new_form("revoke", file, *revoke)
        revoke_nodes(file, revoke)
        return
    if model:
        _name_new_form("model", file)
        write_model(file)
    elif node is not None:
        _name_new_form("node", file, node)
    elif not passphrase or is_new:
        _name_new_form("init" if is_new else "renew", file)
    if passphrase and not is_new:
        _name_new_form("protect", file)
        protect(file)
    key = _passphrase(deployment, is_new=passphrase and is_new)
    # Beside --model, nodes keep what they have.
    _issue(deployment, hours, node, model and hours is None and node is None, key)


def _name_new_form(*words: object) -> None:
    new = " ".join(map(str, words))
    say(f"note: `sdfeel provision {new}` says the same in the new form", style="yellow")


def _load(file: Path) -> Deployment:
    require_extra()
    from sdfeel.deploy.config import load_deployment

    return load_deployment(file)


def _folder(deployment: Deployment) -> Path:
    return deployment.path(deployment.security.folder)


def _has_authority(deployment: Deployment) -> bool:
    return (_folder(deployment) / "ca.key").exists()


def _need_authority(deployment: Deployment, file: Path) -> None:
    if not _has_authority(deployment):
        remedy = f"no CA there: `sdfeel provision init {file}` makes one"
        raise InputError("certificates", str(_folder(deployment)), remedy)


def _authority(deployment: Deployment) -> Authority:
    from sdfeel.deploy.trust.authority import Authority

    return Authority(_folder(deployment), _passphrase(deployment))


def _issue(
    deployment: Deployment,
    hours: float | None,
    only: str | None = None,
    missing: bool = False,
    key: bytes | None = None,
) -> None:
    from sdfeel.deploy.operate.audit import provision_and_record

    options = {"only": only, "missing": missing, "key": key or _passphrase(deployment)}
    nodes, problem = provision_and_record(deployment, hours, **options)
    if problem:
        say(f"note: {problem}", style="yellow")
    typer.echo(f"{len(nodes)} certificates in {_folder(deployment)}; copy revoked.pem with them")


def _protect(deployment: Deployment) -> None:
    authority = _authority(deployment)
    key = _passphrase(deployment, is_new=True)
    assert key is not None  # noqa: S101 - else there was an error
    authority.protect(key)
    record_action(deployment, "key-protected")
    typer.echo(f"{_folder(deployment) / 'ca.key'} needs the passphrase from now on")


def _passphrase(deployment: Deployment, is_new: bool = False) -> bytes | None:
    """From the environment, or asked for: a new one, or that of a key that has one."""
    from sdfeel.deploy.trust.provision import passphrase

    path = _folder(deployment) / "ca.key"
    known = passphrase()
    has_one = path.exists() and b"ENCRYPTED" in path.read_bytes()
    if known is None and (is_new or has_one) and sys.stdin.isatty():
        what = "new passphrase" if is_new else "passphrase"
        text = typer.prompt(f"{what} of {path}", hide_input=True, confirmation_prompt=is_new)
        known = str(text).encode() or None
    if known is None and is_new:
        raise InputError("--passphrase", "", "set SDFEEL_CA_PASSPHRASE, or use a terminal")
    return known


def _role_and_name(text: str) -> tuple[str, str]:
    role, _, name = text.partition("/")
    if not name:
        raise InputError("revoke", text, "ROLE/NAME, such as client/c3")
    return role, name
