"""The schema registry on the broker that leads its topic: registers, finds, compares and changes schemas."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from penstock.broker.schemas.checker import SchemaChecker
from penstock.broker.schemas.runtimes import EmptyRegistry, RegistryRuntimes
from penstock.foundation.errors import CoordinatorNotAvailable, NotCoordinator, PenstockError
from penstock.schemas.formats.format import InvalidSchema
from penstock.schemas.registry import registration
from penstock.schemas.registry.checks import CompareJob, Comparison, ParseJob
from penstock.schemas.registry.commands import Command, Read, Register, StateChanged
from penstock.schemas.registry.errors import IncompatibleSchema, OperationTimedOut, SchemaRejected, StoreFailed
from penstock.schemas.registry.machine import RegistryMachine
from penstock.schemas.registry.model import SchemaText, SchemaVersion
from penstock.schemas.registry.registration import Draft, SchemaRequest
from penstock.schemas.registry.state import RegistryState

logger = logging.getLogger(__name__)
T = TypeVar("T")

TRIES_MAX: Final = 20
"""How often a registration is checked again because the subject has changed meanwhile."""
PARSED_CHARS_MAX: Final = 16 << 20
"""Maximum length of all texts in the cache of parsed schemas."""
_KEY: Final = "registry"


class RegistryService:
    """Reads and changes the registry's state. Only for the broker that leads it; others forward requests to it."""

    def __init__(self, runtimes: RegistryRuntimes | EmptyRegistry, checker: SchemaChecker) -> None:
        self._source = runtimes
        self.checker: Final = checker
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._parsed = _ParsedTexts(PARSED_CHARS_MAX)

    @property
    def runtimes(self) -> RegistryRuntimes:
        assert isinstance(self._source, RegistryRuntimes)
        return self._source

    @cached_property
    def without_topic(self) -> "RegistryService":
        """A registry without schemas, which answers while the topic does not exist."""
        return RegistryService(EmptyRegistry(), self.checker)

    @property
    def state(self) -> RegistryState:
        """The state, as of now: some of it may not be committed yet. Raises PenstockError if this broker does not
        lead the registry, or has not loaded it yet."""
        machine = self._source.find(_KEY).machine
        assert isinstance(machine, RegistryMachine)
        return machine.state

    async def read(self, read: Callable[[RegistryState], T]) -> T:
        """Returns what `read` returns, once all that it has seen is committed."""
        found: T = await self.change(Read(read))
        return found

    async def wait_committed(self) -> None:
        """Returns when all that was decided before is committed."""
        await self.read(lambda state: None)

    async def change(self, command: Command) -> Any:
        """Decides on a command; returns its reply once the decision is committed. Raises PenstockError: with a code
        that is retried if nothing was decided, StoreFailed if it is not known whether the change is committed."""
        self._source.find(_KEY)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(value: Any) -> None:
            if answered.done():
                return
            if isinstance(value, PenstockError):
                answered.set_exception(value)
            else:
                answered.set_result(value)

        self._source.submit(_KEY, command, answer)
        try:
            return await answered
        except (NotCoordinator, CoordinatorNotAvailable) as error:
            if isinstance(command, Read | Register):  # repeating these does no harm
                raise
            raise StoreFailed(f"It is not known whether the change was made; look, and repeat it: {error}") from None

    # -- schemas

    async def register(self, subject: str, request: SchemaRequest, *, normalize: bool) -> SchemaVersion:
        """Registers a schema; returns the version that it has now or had already. Raises RegistryError."""
        lock = self._locks.setdefault(subject, asyncio.Lock())
        for _ in range(TRIES_MAX):
            found = await self._draft(
                subject, registration.complete(self.state, subject, request), normalize=normalize, is_new=True
            )
            async with lock:
                result = await self._register(found, request)
            if not isinstance(result, StateChanged):
                return result
        raise OperationTimedOut(f"subject {subject!r} is changed by other clients all the time; try again")

    async def _register(self, found: Draft, request: SchemaRequest) -> SchemaVersion | StateChanged:
        state, subject = self.state, found.subject
        registration.check_mode(state, subject, request.schema_id)
        revision = state.revision(subject)
        if request.version <= 0:
            same = registration.find_same(state, found)
            if same is not None and request.schema_id in (None, same.id):
                await self.wait_committed()
                return same
        if not state.mode_in_scope(subject).is_import:
            previous = state.versions(subject)
            candidates = registration.candidates(state, found) if request.version <= 0 else ()
            job = registration.compare_job(state, found, previous, candidates)
            if job.previous or job.candidates:
                comparison = await self._compare(job)
                if comparison.same_version is not None:
                    same = state.version(subject, comparison.same_version)
                    await self.wait_committed()
                    return StateChanged() if same is None else same
                messages = registration.describe(comparison.messages, state.config_in_scope(subject))
                if messages:
                    raise IncompatibleSchema(
                        f'Schema being registered is incompatible with an earlier schema for subject "{subject}", '
                        f"details: [{', '.join(messages)}]"
                    )
        command = Register(
            subject=subject,
            schema=found.schema,
            version=request.version,
            schema_id=request.schema_id,
            revision=revision,
            referenced=found.resolved.revisions,
        )
        added: SchemaVersion | StateChanged = await self.change(command)
        if isinstance(added, SchemaVersion):
            logger.info(
                "schema_registered subject=%r version=%d id=%d type=%s",
                subject,
                added.version,
                added.id,
                added.schema.type,
            )
        return added

    async def look_up(
        self, subject: str, schema: SchemaText, *, normalize: bool, deleted: bool
    ) -> SchemaVersion | None:
        """Returns the version of the subject that has this schema; None if there is none."""
        same = await self._look_up(subject, schema, normalize=normalize, deleted=deleted)
        if same is None:
            state = self.state
            latest = state.version(subject, -1)
            if latest is not None:
                again = registration.add_contract(state.config_in_scope(subject), schema, latest, 0, None)
                if again != schema:
                    same = await self._look_up(subject, again, normalize=normalize, deleted=deleted)
        await self.wait_committed()
        return same

    async def _look_up(
        self, subject: str, schema: SchemaText, *, normalize: bool, deleted: bool
    ) -> SchemaVersion | None:
        found = await self._draft(subject, schema, normalize=normalize, is_new=False)
        same = registration.find_same(self.state, found, deleted=deleted)
        if same is not None:
            return same
        candidates = registration.candidates(self.state, found, deleted=deleted)
        if not candidates:
            return None
        job = registration.compare_job(self.state, found, [], candidates)
        number = (await self._compare(job)).same_version
        return None if number is None else self.state.version(subject, number, deleted=deleted)

    async def compare(
        self, subject: str, schema: SchemaText, previous: list[SchemaVersion], *, normalize: bool
    ) -> list[str]:
        """Returns why a schema is incompatible with earlier versions; empty if it is compatible."""
        if not schema.text.strip():
            raise SchemaRejected("Empty schema")
        found = await self._draft(subject, schema, normalize=normalize, is_new=True)
        comparison = await self._compare(registration.compare_job(self.state, found, previous))
        return registration.describe(comparison.messages, self.state.config_in_scope(subject))

    async def formatted(self, version: SchemaVersion, layout: str) -> str:
        """Returns the text of a schema in one of the layouts of its format, such as `resolved`."""
        if not layout.strip():
            return version.schema.text
        source = registration.source_of(self.state, version)
        return await self._parse(ParseJob(source=source, validate=False, layout=layout.strip()))

    async def close(self) -> None:
        self.runtimes.close()
        await self.checker.close()

    # -- jobs

    async def _draft(self, subject: str, schema: SchemaText, *, normalize: bool, is_new: bool) -> Draft:
        """Returns a draft of the schema with its canonical text."""
        if not schema.text.strip():
            raise SchemaRejected("Empty schema")
        found = registration.draft(self.state, subject, schema, normalize=normalize, is_new=is_new)
        return found.parsed(await self._parse(found.job))

    async def _parse(self, job: ParseJob) -> str:
        text = self._parsed.get(job)
        if text is None:
            try:
                text = str(await self.checker.run(job))
            except InvalidSchema as error:
                raise SchemaRejected(f"Invalid schema of type {job.source.type}, details: {error}") from None
            self._parsed.add(job, text)
        return text

    async def _compare(self, job: CompareJob) -> Comparison:
        try:
            found = await self.checker.run(job)
        except InvalidSchema as error:
            raise SchemaRejected(f"The schemas cannot be compared: {error}") from None
        assert isinstance(found, Comparison)
        return found


class _ParsedTexts:
    """Canonical texts of schemas that clients send again and again. Drops those not used for longest."""

    def __init__(self, chars_max: int) -> None:
        self._chars_max = chars_max
        self._texts: OrderedDict[ParseJob, str] = OrderedDict()
        self._chars = 0

    def get(self, job: ParseJob) -> str | None:
        text = self._texts.get(job)
        if text is not None:
            self._texts.move_to_end(job)
        return text

    def add(self, job: ParseJob, text: str) -> None:
        if job in self._texts:
            return
        self._texts[job] = text
        self._chars += _chars(job, text)
        while self._chars > self._chars_max:
            old, old_text = self._texts.popitem(last=False)
            self._chars -= _chars(old, old_text)


def _chars(job: ParseJob, text: str) -> int:
    return len(job.source.text) + len(text) + sum(len(each) for _, each in job.source.references)
