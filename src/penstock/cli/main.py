"""The `penstock` entry point: command groups, lazy imports and exit codes.

Exit codes: 0 success, 1 the cluster refused or damage was found, 2 usage error, 130 interrupted (Ctrl-C), 143
terminated (SIGTERM). `serve` and `dev` run until interrupted or terminated and then exit with 0.
"""

import importlib
import os
import sys
from typing import Any, Final

import click

import penstock
from penstock.cli.common import Terminated, is_terminated, sigterm_raises
from penstock.cli.contexts import apply_context
from penstock.foundation.errors import PenstockError

_COMMANDS: Final = {
    "serve": "penstock.cli.serve.commands:serve",
    "topic": "penstock.cli.topic.commands:topic",
    "publish": "penstock.cli.publish:publish",
    "subscribe": "penstock.cli.subscribe.commands:subscribe",
    "group": "penstock.cli.group.commands:group",
    "view": "penstock.cli.view:view",
    "queue": "penstock.cli.queue.commands:queue",
    "schema": "penstock.cli.schema.commands:schema",
    "delayed": "penstock.cli.delayed:delayed",
    "metrics": "penstock.cli.metrics:metrics",
    "cluster": "penstock.cli.cluster.commands:cluster",
    "user": "penstock.cli.user:user",
    "token": "penstock.cli.token:token",
    "acl": "penstock.cli.acl.commands:acl",
    "audit": "penstock.cli.audit:audit",
    "quota": "penstock.cli.quota:quota",
    "context": "penstock.cli.context:context",
    "security": "penstock.cli.security.commands:security",
    "log": "penstock.cli.log.commands:log",
    "pipeline": "penstock.cli.pipeline.commands:pipeline",
    "demo": "penstock.cli.demo.commands:demo",
    "dev": "penstock.cli.dev.commands:dev",
}
_WITHOUT_CONTEXT: Final = ("serve", "context", "security", "log", "demo", "dev")
"""Commands that use no cluster, or one of their own."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143
"""The exit code that shells use for a process ended by SIGTERM: 128 + 15."""


class Misuse(click.ClickException):
    """A usage error, formatted on one line with a pointer to --help."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        where = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""
        super().__init__(error.format_message().rstrip(".") + where)


class LazyGroup(click.Group):
    """The top-level click group; imports a command's module on first use, so that `serve` starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        where = _COMMANDS.get(cmd_name)
        if where is None:
            return None
        module, _, name = where.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Turns all errors into exit codes and one-line messages."""
        try:
            return self._invoke(ctx)
        except click.exceptions.Exit:
            raise
        except Exception:
            if is_terminated():  # a library may have turned Terminated into another error
                ctx.exit(TERMINATED)
            raise

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            try:
                with sigterm_raises():
                    return super().invoke(ctx)
            finally:
                sys.stdout.flush()  # here, where a BrokenPipeError is still handled
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise Misuse(error) from error
        except PenstockError as error:
            raise click.ClickException(" ".join(error.message.split())) from error
        except Terminated:
            ctx.exit(TERMINATED)
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            # The reader of our output has closed the pipe. Python must not flush into it again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(penstock.__version__, prog_name="penstock")
@click.option(
    "--context", metavar="NAME", help="Use this context, see `penstock context`.  [env var: PENSTOCK_CONTEXT]"
)
@click.pass_context
def main(ctx: click.Context, context: str | None) -> None:
    """Kafka topics and SQS queues on one log, with Spark pipelines.

    \b
    Start a broker, then use it from another terminal:
      penstock serve
      penstock topic create orders --partitions 3
      penstock publish orders "hello" --key 42
      penstock subscribe orders --from earliest --max 1
      penstock queue create jobs
    """
    if ctx.invoked_subcommand not in _WITHOUT_CONTEXT:
        apply_context(context)
    elif context is not None:
        raise click.UsageError(f"`penstock {ctx.invoked_subcommand}` uses no context; remove --context")
