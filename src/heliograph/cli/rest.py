"""``heliograph rest``: lines for the files of those who may use the REST API."""

from __future__ import annotations

import sys

import click

from heliograph.errors import ConfigError
from heliograph.rest.credentials import hash_password, new_token
from heliograph.rest.settings import Role
from heliograph.shown import shown

__all__ = ["rest_group"]

_role = click.option(
    "--role",
    type=click.Choice([role.name.lower() for role in Role]),
    required=True,
    help="viewer sees what is mirrored; operator also pauses, resumes, stops, restarts, and sees"
    " what a failover would do; admin also creates, changes, deletes and fails over.",
)


@click.group("rest")
def rest_group() -> None:
    """Make lines for the files of those who may use the REST API (docs/rest.md)."""


@rest_group.command("user")
@click.argument("name")
@_role
@click.option(
    "--password-stdin", is_flag=True, help="Read the password from the input's first line."
)
def user_command(name: str, role: str, password_stdin: bool) -> None:
    """Print the line of user NAME for heliograph.rest.users.file.

    Asks for the password twice, without showing it. The line holds a slow hash of it, never the
    password itself. Running workers read the file again when it changes.
    """
    _check_name(name)
    password = _from_input() if password_stdin else _asked()
    if not password:
        raise ConfigError(
            "rest.password", "the password is empty", "give one on the input's first line"
        )
    click.echo(f"{name}:{role}:{hash_password(password)}")


@rest_group.command("token")
@click.argument("name")
@_role
def token_command(name: str, role: str) -> None:
    """Print a new token, and its line for heliograph.rest.tokens.file.

    The line goes to the output, the token to the error output: >> appends the line to the file and
    still shows the token. It is shown this once; the line holds a hash of it. Clients send it as
    "Authorization: Bearer <token>".
    """
    _check_name(name)
    token, line = new_token(name, Role.named(role))
    click.echo(f"token, shown this once: {token}", err=True)
    click.echo(line)


def _check_name(name: str) -> None:
    """A name that would make another line of it is refused."""
    if not name.strip() or name != name.strip() or ":" in name or name.startswith("#"):
        raise ConfigError(
            "rest.name", f"{shown(name)!r} cannot be a name",
            "it must not be empty, begin with #, begin or end with a space, or have a colon",
        )  # fmt: skip
    if not name.isprintable():
        raise ConfigError(
            "rest.name", f"{shown(name)!r} cannot be a name", "use printable characters"
        )


def _asked() -> str:
    """Without echo, twice; Ctrl-C ends the command."""
    password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password


def _from_input() -> str:
    return sys.stdin.readline().rstrip("\r\n")
