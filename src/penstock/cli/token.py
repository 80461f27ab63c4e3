"""`penstock token`: creates, lists, renews and expires delegation tokens."""

from base64 import b64encode
from typing import Any, Final

import click

from penstock.cli.acl.options import PRINCIPAL
from penstock.cli.common import cluster_options, echo_list, echo_result, format_time, run_client, value_parser
from penstock.cli.deletion import confirm, delete_each
from penstock.client.cluster import KafkaClient
from penstock.client.delegation_tokens import DEFAULT_MS, DelegationTokenInfo, DelegationTokens
from penstock.client.errors import ServerError
from penstock.foundation.codes import ErrorCode
from penstock.foundation.durations import parse_duration

_COLUMNS: Final = ["TOKEN", "OWNER", "REQUESTER", "RENEWERS", "CREATED", "EXPIRES", "RENEWABLE UNTIL"]
_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def _milliseconds(text: str) -> int:
    found = round(parse_duration(text) * 1000)
    if found <= 0:
        raise ValueError(f"{text!r} is too short; give a duration above 0, such as 30m, 2h or 1d")
    return found


_duration = value_parser(_milliseconds)


@click.group()
def token() -> None:
    """Create, list, renew and expire delegation tokens, with which jobs log in as a user without its password.

    \b
    A token is created by a client that has logged in itself. A job logs in with the id and the password of the token:
    sasl.mechanism=SCRAM-SHA-512, and tokenauth="true" in sasl.jaas.config. Brokers need delegation.token.secret.key.

    \b
    Examples:
      penstock token create --renewer scheduler --lifetime 3d
      penstock token list
      penstock token renew vZOUbtoqSXqxTyP8ZhkHsQ
      penstock token expire vZOUbtoqSXqxTyP8ZhkHsQ --yes
    """


@token.command()
@click.option("--owner", type=PRINCIPAL, metavar="USER", help="The user that the token is for.  [default: yourself]")
@click.option(
    "--renewer", "renewers", type=PRINCIPAL, metavar="USER", multiple=True, help="May renew and expire it, too."
)
@click.option(
    "--lifetime",
    "lifetime_ms",
    metavar="DURATION",
    callback=_duration,
    help="For how long it can be renewed.  [default: delegation.token.max.lifetime.ms]",
)
@cluster_options
def create(
    owner: str | None, renewers: tuple[str, ...], lifetime_ms: int | None, bootstrap: str, as_json: bool
) -> None:
    """Create a delegation token, and print its password.

    A token of another user needs the permission create-tokens on that user.

    \b
    Examples:
      penstock token create
      penstock token create --renewer scheduler --lifetime 3d --json
      penstock token create --owner etl
    """
    made = run_client(
        bootstrap,
        lambda client: DelegationTokens(client).create(
            owner=owner, renewers=renewers, lifetime_ms=lifetime_ms or DEFAULT_MS
        ),
    )
    text = (
        f"created delegation token {made.token_id} of {made.owner}: it expires at {format_time(made.expires_ms)}, "
        f"and can be renewed until {format_time(made.max_ms)}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={_JAAS} required username="{made.token_id}" password="{_password(made)}" '
        'tokenauth="true";'
    )
    echo_result({**_as_json(made), "password": _password(made)}, text, as_json=as_json)


@token.command(name="list")
@click.option(
    "--owner", "owners", type=PRINCIPAL, metavar="USER", multiple=True, help="Only tokens that this user may renew."
)
@click.option("--show-passwords", is_flag=True, help="Print the passwords, too.")
@cluster_options
def list_(owners: tuple[str, ...], show_passwords: bool, bootstrap: str, as_json: bool) -> None:
    """List delegation tokens: your own, those that you may renew, and those that you may describe.

    \b
    Examples:
      penstock token list
      penstock token list --owner etl --json
    """
    found = run_client(bootstrap, lambda client: DelegationTokens(client).all(owners or None))
    rows: list[list[object]] = []
    objects: list[dict[str, object]] = []
    for each in found:
        secret = [_password(each)] if show_passwords else []
        times = map(format_time, (each.issued_ms, each.expires_ms, each.max_ms))
        rows.append([each.token_id, each.owner, each.requester, ",".join(each.renewers) or None, *times, *secret])
        objects.append({**_as_json(each), **({"password": _password(each)} if show_passwords else {})})
    echo_list(
        objects,
        [*_COLUMNS, *(["PASSWORD"] if show_passwords else [])],
        rows,
        as_json=as_json,
        nothing="No delegation tokens found; create one with `penstock token create`.",
    )


@token.command()
@click.argument("token_id", metavar="TOKEN")
@click.option(
    "--for",
    "period_ms",
    metavar="DURATION",
    callback=_duration,
    help="For how long from now.  [default: delegation.token.expiry.time.ms]",
)
@cluster_options
def renew(token_id: str, period_ms: int | None, bootstrap: str, as_json: bool) -> None:
    """Renew a delegation token that is yours, or that you are a renewer of. TOKEN is its id.

    \b
    Examples:
      penstock token renew vZOUbtoqSXqxTyP8ZhkHsQ
      penstock token renew vZOUbtoqSXqxTyP8ZhkHsQ --for 12h
    """

    async def work(client: KafkaClient) -> int:
        tokens = DelegationTokens(client)
        return await tokens.renew((await _find(tokens, token_id)).hmac, period_ms or DEFAULT_MS)

    _echo_expiry(token_id, run_client(bootstrap, work), "renewed", as_json)


@token.command()
@click.argument("token_ids", metavar="TOKEN...", nargs=-1, required=True)
@click.option("--after", "period_ms", metavar="DURATION", callback=_duration, help="When.  [default: at once]")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def expire(token_ids: tuple[str, ...], period_ms: int | None, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete delegation tokens that are yours, or that you are a renewer of; or let them expire later. Connections of
    clients that have logged in with them stay open until the tokens would have expired.

    \b
    Examples:
      penstock token expire vZOUbtoqSXqxTyP8ZhkHsQ --yes
      penstock token expire vZOUbtoqSXqxTyP8ZhkHsQ --after 10m
    """
    if period_ms is None:
        confirm(f"Delete {', '.join(token_ids)}? Clients that log in with them are refused.", yes)

        async def delete(client: KafkaClient, token_id: str) -> None:
            tokens = DelegationTokens(client)
            await tokens.expire((await _find(tokens, token_id)).hmac)

        delete_each("token", token_ids, delete, bootstrap, as_json)
        return
    for token_id in token_ids:

        async def work(client: KafkaClient, token_id: str = token_id) -> int:
            tokens = DelegationTokens(client)
            return await tokens.expire((await _find(tokens, token_id)).hmac, period_ms)

        _echo_expiry(token_id, run_client(bootstrap, work), "changed", as_json)


async def _find(tokens: DelegationTokens, token_id: str) -> DelegationTokenInfo:
    for each in await tokens.all():
        if each.token_id == token_id:
            return each
    raise ServerError(
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        f"there is no delegation token {token_id!r}, or not for you; `penstock token list` lists the tokens",
    )


def _echo_expiry(token_id: str, expires_ms: int, participle: str, as_json: bool) -> None:
    expires = format_time(expires_ms)
    facts = {"token": token_id, "expires": expires}
    echo_result(facts, f"{participle} delegation token {token_id}: it expires at {expires}", as_json=as_json)


def _password(found: DelegationTokenInfo) -> str:
    return b64encode(found.hmac).decode()


def _as_json(found: DelegationTokenInfo) -> dict[str, Any]:
    return {
        "token": found.token_id,
        "owner": found.owner,
        "requester": found.requester,
        "renewers": list(found.renewers),
        "created": format_time(found.issued_ms),
        "expires": format_time(found.expires_ms),
        "renewable_until": format_time(found.max_ms),
    }
