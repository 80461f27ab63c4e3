"""`penstock user`: creates, lists and deletes users, and changes their passwords (SASL) and access keys (SQS)."""

import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

import click

from penstock.cli.access_key import access_key
from penstock.cli.common import (
    bootstrap_option,
    cluster_options,
    echo_list,
    echo_result,
    json_option,
    run,
    run_client,
    store_config_option,
)
from penstock.cli.deletion import confirm, delete_each
from penstock.client.access_keys import AccessKeys
from penstock.client.cluster import KafkaClient
from penstock.client.errors import UnsupportedByBroker
from penstock.client.users import ITERATIONS, SaltedPassword, UserInfo, Users
from penstock.cluster.identity import lock_folder
from penstock.cluster.user_changes import bootstrap_ops
from penstock.cluster.users import User, check_user_name
from penstock.coordination.store import Conflict
from penstock.coordination.store_security import StoreSecurity
from penstock.coordination.stores import EMBEDDED, open_store
from penstock.foundation.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential, ScramMechanism, mechanism_of

SESSION_S: Final = 10.0
PASSWORD_CHARS_MIN: Final = 8
_GENERATED_BYTES: Final = 24
_NAMES: Final = [each.sasl_name for each in ScramMechanism]


@click.group()
def user() -> None:
    """Create, list and delete users, their passwords (SASL) and their access keys (queues and schemas).

    \b
    Examples:
      penstock user create orders --generate
      penstock user list
      penstock user password orders
      penstock user access-key create orders
      penstock user delete orders
    """


user.add_command(access_key)


def _password_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--iterations",
            type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
            default=ITERATIONS,
            show_default=True,
            help="Iterations of PBKDF2: more make guessing a password harder.",
        ),
        click.option(
            "--mechanism",
            "mechanisms",
            type=click.Choice(_NAMES, case_sensitive=False),
            multiple=True,
            help="Only for logins with this mechanism. Repeatable.  [both, which covers PLAIN as well]",
        ),
        click.option("--generate", is_flag=True, help="Make a random password, and print it."),
        click.option(
            "--password-file",
            type=click.File(encoding="utf-8"),
            metavar="FILE",
            help="Read the password from the first line of a file; `-` for standard input.",
        ),
    ):
        command = option(command)
    return command


@user.command()
@click.argument("name")
@_password_options
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Create the user in the data folder of a broker that does not run, before its first start for example.",
)
@click.option("--store", metavar="URL", help="Create the user in this store, zookeeper://… or etcd://….")
@store_config_option
@bootstrap_option
@json_option
def create(
    name: str,
    password_file: TextIO | None,
    generate: bool,
    mechanisms: tuple[str, ...],
    iterations: int,
    data_dir: Path | None,
    store: str | None,
    store_security: StoreSecurity,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a user. Asks for the password, unless --generate or --password-file is given.

    Brokers never get the password, only keys that are derived from it. The first user of a cluster whose listeners
    all need a login is created with --data-dir or --store.

    \b
    Examples:
      penstock user create orders
      penstock user create orders --generate --json
      penstock user create broker --password-file secret --data-dir penstock-data
      penstock user create broker --password-file secret --store etcd://etcd-1:2379/penstock
    """
    if data_dir is not None and store is not None:
        raise click.UsageError("--data-dir and --store exclude each other")
    check_user_name(name)
    password = _password(name, password_file, generate)
    chosen = _mechanisms(mechanisms)
    if data_dir is None and store is None:
        run_client(bootstrap, lambda client: _create(client, name, _salted(password, chosen, iterations)))
    else:
        _create_offline(name, _salted(password, chosen, iterations), data_dir, store or EMBEDDED, store_security)
    facts: dict[str, object] = {"user": name, "mechanisms": [each.sasl_name for each in chosen]}
    _echo(facts, f"created user {name}", password if generate else None, as_json)


def _salted(password: str, mechanisms: list[ScramMechanism], iterations: int) -> list[SaltedPassword]:
    return [SaltedPassword.of(password, mechanism, iterations) for mechanism in mechanisms]


async def _create(client: KafkaClient, name: str, passwords: list[SaltedPassword]) -> None:
    users = Users(client)
    if await users.find(name) is not None:
        raise click.ClickException(f"user {name!r} exists; change its password with `penstock user password {name}`")
    await users.set_password(name, passwords)


def _create_offline(
    name: str, passwords: list[SaltedPassword], data_dir: Path | None, url: str, security: StoreSecurity
) -> None:
    """Writes the user into a store. An embedded store is in a data folder, whose broker must not run."""
    made = User(
        name=name,
        scram={
            one.mechanism: ScramCredential.from_salted_password(one.mechanism, one.salted, one.salt, one.iterations)
            for one in passwords
        },
    )

    async def work() -> None:
        store = await open_store(url, data_dir or Path(), SESSION_S, security=security)
        try:
            await store.transact(bootstrap_ops(made))
        finally:
            await store.close()

    lock_fd = -1 if data_dir is None else lock_folder(data_dir)
    try:
        run(work())
    except Conflict as error:
        raise click.ClickException(f"user {name!r} exists in this store") from error
    finally:
        if lock_fd >= 0:
            os.close(lock_fd)


@user.command()
@click.argument("name")
@_password_options
@cluster_options
def password(
    name: str,
    password_file: TextIO | None,
    generate: bool,
    mechanisms: tuple[str, ...],
    iterations: int,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Change the password of a user. Connections that are open stay open.

    \b
    Examples:
      penstock user password orders
      penstock user password orders --password-file new-secret
    """
    wanted = _password(name, password_file, generate)

    async def work(client: KafkaClient) -> list[ScramMechanism]:
        users = Users(client)
        found = await users.find(name)
        if found is None:
            raise click.ClickException(f"there is no user {name!r}; `penstock user list` lists the users")
        # All that the user has: else the old password would stay good for some mechanism.
        chosen = _mechanisms(mechanisms) if mechanisms else list(found.iterations)
        await users.set_password(name, _salted(wanted, chosen, iterations))
        return chosen

    chosen = run_client(bootstrap, work)
    facts: dict[str, object] = {"user": name, "mechanisms": [each.sasl_name for each in chosen]}
    _echo(facts, f"changed the password of user {name}", wanted if generate else None, as_json)


@user.command(name="list")
@cluster_options
def list_(bootstrap: str, as_json: bool) -> None:
    """List users, with the mechanisms and iterations of their passwords, and the number of their access keys.

    \b
    Examples:
      penstock user list
      penstock user list --json
    """
    found, counts = run_client(bootstrap, _find_all)
    echo_list(
        [_as_json(each, counts[each.name]) for each in found],
        ["USER", "MECHANISMS", "ITERATIONS", "ACCESS KEYS"],
        [
            [
                each.name,
                ",".join(mechanism.sasl_name for mechanism in each.iterations) or None,
                ",".join(map(str, each.iterations.values())) or None,
                counts[each.name],
            ]
            for each in found
        ],
        as_json=as_json,
        nothing="No users found; create one with `penstock user create NAME`.",
    )


async def _find_all(client: KafkaClient) -> tuple[list[UserInfo], Counter[str]]:
    """Returns all users, those that have only access keys among them, and the number of access keys of each."""
    users = await Users(client).all()
    try:
        counts = Counter(key.user for key in await AccessKeys(client).all())
    except UnsupportedByBroker:  # an older broker, which has none
        counts = Counter()
    known = {each.name for each in users}
    users += [UserInfo(name=name, iterations={}) for name in counts if name not in known]
    return sorted(users, key=lambda each: each.name), counts


def _as_json(found: UserInfo, access_keys: int) -> dict[str, object]:
    return {
        "user": found.name,
        "iterations": {mechanism.sasl_name: count for mechanism, count in found.iterations.items()},
        "access_keys": access_keys,
    }


@user.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def delete(names: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete users and their access keys. Asks for confirmation; without a terminal, --yes is required.

    Open connections stay open.

    \b
    Examples:
      penstock user delete orders
      penstock user delete orders billing --yes
    """
    confirm(f"Delete {', '.join(names)}? Clients that log in as them or use their access keys are refused.", yes)
    delete_each("user", names, lambda client, name: Users(client).delete(name), bootstrap, as_json)


def _password(name: str, file: TextIO | None, generate: bool) -> str:
    """Returns the password from a file, from the terminal, or a new random one."""
    if generate and file is not None:
        raise click.UsageError("--generate and --password-file exclude each other")
    if generate:
        return secrets.token_urlsafe(_GENERATED_BYTES)
    if file is not None:
        found = file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        found = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
    else:
        raise click.UsageError("no terminal to ask for the password: give --password-file FILE or --generate")
    if len(found) < PASSWORD_CHARS_MIN:
        raise click.UsageError(f"the password has {len(found)} characters; give it at least {PASSWORD_CHARS_MIN}")
    return found


def _mechanisms(names: tuple[str, ...]) -> list[ScramMechanism]:
    return [found for each in names or _NAMES if (found := mechanism_of(each)) is not None]


def _echo(facts: dict[str, object], text: str, password: str | None, as_json: bool) -> None:
    """Prints the result, with the password if it was generated."""
    if password is not None:
        facts["password"] = password
        text += f"; its password is {password}"
    echo_result(facts, text, as_json=as_json)
