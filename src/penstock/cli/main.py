"""`penstock`: the command and its groups. Each group is imported when it is used, so that `serve` starts fast."""

import importlib
from typing import Final

import click

import penstock

_COMMANDS: Final = {
    "serve": "penstock.cli.serve:serve",
    "topic": "penstock.cli.topic:topic",
    "publish": "penstock.cli.publish:publish",
    "subscribe": "penstock.cli.subscribe:subscribe",
    "log": "penstock.cli.log:log",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = _COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(penstock.__version__, prog_name="penstock")
def main() -> None:
    """Kafka topics and SQS queues on one log, with Spark pipelines.

    \b
    Start a broker, then talk to it:
      penstock serve
      penstock topic create orders --partitions 3
      penstock publish orders "hello" --key 42
      penstock subscribe orders --from earliest --max 1
    """
