"""`penstock user access-key`: creates, lists, disables, encrypts anew and deletes the access keys of users."""

from typing import Any, Final

import click

from penstock.cli.common import cluster_options, echo_list, echo_result, format_time, run_client
from penstock.cli.deletion import confirm, delete_each
from penstock.client.access_keys import AccessKeyInfo, AccessKeys
from penstock.client.cluster import KafkaClient

_COLUMNS: Final = ["ACCESS KEY", "USER", "ACCOUNT", "ACTIONS", "QUEUES", "SUBJECTS", "CREATED", "STATE"]


@click.group(name="access-key")
def access_key() -> None:
    """Create, list, disable and delete access keys, with which users sign requests for queues (SQS) and schemas.

    Brokers need the setting sqs.secret.key; `penstock security key` makes one.

    \b
    Examples:
      penstock user access-key create orders --queue 'orders-*'
      penstock user access-key list
      penstock user access-key disable AKIAQ4T7PX2LZ5RWN3BC
      penstock user access-key delete AKIAQ4T7PX2LZ5RWN3BC
      penstock user access-key reencrypt
    """


@access_key.command()
@click.argument("user")
@click.option("--account", default="", metavar="ID", help="The account of 12 digits.  [default: the default account]")
@click.option("--action", "actions", multiple=True, metavar="PATTERN", help="An allowed action. Repeatable.  [all]")
@click.option("--queue", "queues", multiple=True, metavar="PATTERN", help="Queues it may use. Repeatable.  [all]")
@click.option(
    "--subject", "subjects", multiple=True, metavar="PATTERN", help="Subjects of schemas. Repeatable.  [all]"
)
@cluster_options
def create(
    user: str,
    account: str,
    actions: tuple[str, ...],
    queues: tuple[str, ...],
    subjects: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create an access key of a user, and print its secret, which is not shown again.

    The user need not exist: it may have only access keys. Patterns are those of a shell: `*` and `?`. Use TLS, or run
    the command on the broker's machine: brokers send no secret that others could read.

    \b
    Examples:
      penstock user access-key create orders
      penstock user access-key create orders --action 'Receive*' --action DeleteMessage --queue 'orders-*'
      penstock user access-key create schemas --action schema:Read --subject 'orders-*' --json
      penstock user access-key create payments --account 111122223333
    """
    made = run_client(
        bootstrap,
        lambda client: AccessKeys(client).create(
            user, owner=account, actions=actions or None, queues=queues or None, subjects=subjects or None
        ),
    )
    facts = {
        "access_key": made.access_key,
        "user": user,
        "account": made.owner,
        "actions": list(actions or ("*",)),
        "queues": list(queues or ("*",)),
        "subjects": list(subjects or ("*",)),
        "created": format_time(made.created_ms),
        "secret": made.secret,
    }
    text = (
        f"created access key {made.access_key} of user {user} in account {made.owner}; keep its secret, which is not "
        "shown again\n"
        f"AWS_ACCESS_KEY_ID={made.access_key}\n"
        f"AWS_SECRET_ACCESS_KEY={made.secret}"
    )
    echo_result(facts, text, as_json=as_json)


@access_key.command(name="list")
@click.argument("user", required=False)
@cluster_options
def list_(user: str | None, bootstrap: str, as_json: bool) -> None:
    """List access keys of a user, or of all users, without their secrets.

    The state `unusable` means that the broker that was asked has another sqs.secret.key, or none.

    \b
    Examples:
      penstock user access-key list
      penstock user access-key list orders --json
    """
    found = run_client(bootstrap, lambda client: AccessKeys(client).all(user))
    echo_list(
        [_as_json(each) for each in found],
        _COLUMNS,
        [
            [
                each.access_key,
                each.user,
                each.owner,
                ",".join(each.actions),
                ",".join(each.queues),
                ",".join(each.subjects),
                format_time(each.created_ms),
                _state(each),
            ]
            for each in found
        ],
        as_json=as_json,
        nothing="No access keys found; create one with `penstock user access-key create USER`.",
    )


def _state(key: AccessKeyInfo) -> str:
    if not key.is_usable:
        return "unusable"
    return "enabled" if key.is_enabled else "disabled"


def _as_json(key: AccessKeyInfo) -> dict[str, Any]:
    return {
        "access_key": key.access_key,
        "user": key.user,
        "account": key.owner,
        "actions": list(key.actions),
        "queues": list(key.queues),
        "subjects": list(key.subjects),
        "created": format_time(key.created_ms),
        "enabled": key.is_enabled,
        "usable": key.is_usable,
    }


@access_key.command()
@click.argument("ids", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@cluster_options
def delete(ids: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Delete access keys. Asks for confirmation; without a terminal, --yes is required.

    \b
    Examples:
      penstock user access-key delete AKIAQ4T7PX2LZ5RWN3BC
      penstock user access-key delete AKIAQ4T7PX2LZ5RWN3BC --yes
    """
    confirm(f"Delete {', '.join(ids)}? Requests that are signed with them are refused.", yes)
    delete_each("access_key", ids, lambda client, name: AccessKeys(client).delete(name), bootstrap, as_json)


@access_key.command()
@click.argument("id")
@cluster_options
def disable(id: str, bootstrap: str, as_json: bool) -> None:
    """Disable an access key: requests that are signed with it are refused until it is enabled again.

    \b
    Example:
      penstock user access-key disable AKIAQ4T7PX2LZ5RWN3BC
    """
    _set_enabled(id, False, bootstrap, as_json)


@access_key.command()
@click.argument("id")
@cluster_options
def enable(id: str, bootstrap: str, as_json: bool) -> None:
    """Enable an access key that was disabled.

    \b
    Example:
      penstock user access-key enable AKIAQ4T7PX2LZ5RWN3BC
    """
    _set_enabled(id, True, bootstrap, as_json)


@access_key.command()
@cluster_options
def reencrypt(bootstrap: str, as_json: bool) -> None:
    """Encrypt the secrets of all access keys with the first key of sqs.secret.key.

    To replace that key, set `NEW,OLD` on all brokers and restart them, run this command, then set `NEW` alone and
    restart them again. Clients notice nothing. Until the command has run, no access keys can be created.

    \b
    Example:
      penstock user access-key reencrypt
    """
    run_client(bootstrap, lambda client: AccessKeys(client).reencrypt())
    text = "all access keys are encrypted with the first key of sqs.secret.key; brokers need no other one any more"
    echo_result({"reencrypted": True}, text, as_json=as_json)


def _set_enabled(name: str, is_enabled: bool, bootstrap: str, as_json: bool) -> None:
    async def work(client: KafkaClient) -> None:
        await AccessKeys(client).set_enabled(name, is_enabled)

    run_client(bootstrap, work)
    done = "enabled" if is_enabled else "disabled"
    echo_result({"access_key": name, "enabled": is_enabled}, f"{done} access key {name}", as_json=as_json)
