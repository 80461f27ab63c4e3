"""A registry's state machine with the parts that unit tests need: commands in, records applied, replies out."""

from typing import Any

from penstock.foundation.decision import StateRecord
from penstock.schemas.registry.commands import Command, DeleteSubject, DeleteVersion, Register, SetConfig, SetMode
from penstock.schemas.registry.machine import RegistryMachine
from penstock.schemas.registry.model import Mode, Reference, SchemaText, SchemaVersion


def avro(name: str, *references: Reference, **contract: Any) -> SchemaText:
    return SchemaText(type="AVRO", text=f'{{"type":"record","name":"{name}"}}', references=references, **contract)


class World:
    """One registry. Decisions are persisted at once."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self.machine = RegistryMachine(bytes_max=bytes_max)
        self.log: list[StateRecord] = []

    def call(self, command: Command) -> Any:
        """Returns the reply to a command, whose records are applied."""
        decision = self.machine.decide(1, command, 0)
        for record in decision.persist:
            self.log.append(record)
            self.machine.apply(record, -1)
        ((_, reply),) = decision.replies
        return reply

    def register(
        self, subject: str, schema: SchemaText | str, *, version: int = 0, schema_id: int | None = None
    ) -> SchemaVersion:
        text = avro(schema) if isinstance(schema, str) else schema
        revision = self.machine.state.revision(subject)
        found: SchemaVersion = self.call(Register(subject, text, version, schema_id, revision))
        assert isinstance(found, SchemaVersion)
        return found

    def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> Any:
        if version is None:
            return self.call(DeleteSubject(subject, permanent))
        return self.call(DeleteVersion(subject, version, permanent))

    def configure(self, subject: str | None, **changes: Any) -> Any:
        return self.call(SetConfig(subject, changes))

    def set_mode(self, subject: str | None, mode: Mode, *, force: bool = False) -> Any:
        return self.call(SetMode(subject, mode, force))

    def compacted(self) -> "World":
        """Returns the registry that reads what compaction leaves: the last record of each key, without tombstones."""
        last = {record.key: at for at, record in enumerate(self.log)}
        again = World(self.machine.bytes_max)
        for at, record in enumerate(self.log):
            if last[record.key] == at and record.value is not None:
                again.log.append(record)
                again.machine.apply(StateRecord(key=record.key, value=record.value), -1)
        return again

    def replayed(self) -> "World":
        """Returns the registry that reads the whole log."""
        again = World(self.machine.bytes_max)
        for record in self.log:
            again.log.append(record)
            again.machine.apply(StateRecord(key=record.key, value=record.value), -1)
        return again

    def shown(self) -> dict[str, list[tuple[int, int, str, bool]]]:
        """Returns all versions: number, id, text, and whether it is soft-deleted."""
        return {
            subject: [(each.version, each.id, each.schema.text, each.deleted) for each in versions.values()]
            for subject, versions in self.machine.state.subjects.items()
        }
