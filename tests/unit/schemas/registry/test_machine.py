"""The registry's state machine: versions, ids, deletion, references, settings."""

import contextlib

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.schemas.registry.commands import (
    DeleteConfig,
    DeleteContext,
    DeleteMode,
    Read,
    Register,
    StateChanged,
)
from penstock.schemas.registry.data_contract import Metadata
from penstock.schemas.registry.errors import (
    ContextNotEmpty,
    InvalidCompatibilityLevel,
    OperationNotPermitted,
    ReferenceExists,
    RegistryError,
    SchemaRejected,
    SubjectNotFound,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    VersionNotFound,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from penstock.schemas.registry.model import LATEST, Level, Mode, Reference
from tests.examples import examples

from .registry_harness import World, avro

# -- versions and ids


def test_versions_count_by_subject_and_ids_over_all() -> None:
    world = World()
    found = [world.register("a", "X"), world.register("a", "Y"), world.register("b", "Z")]
    assert [(each.version, each.id) for each in found] == [(1, 1), (2, 2), (1, 3)]


def test_a_schema_has_one_id_in_all_subjects() -> None:
    world = World()
    assert world.register("a", "X").id == world.register("b", "X").id == 1
    assert world.register("b", "Y").id == 2
    assert [each.subject for each in world.machine.state.uses(".", 1)] == ["a", "b"]


def test_each_context_has_ids_of_its_own() -> None:
    world = World()
    assert world.register("a", "X").id == 1
    assert world.register(":.eu:a", "Y").id == 1
    assert world.machine.state.contexts == {".eu"}


def test_metadata_make_another_schema() -> None:
    world = World()
    assert world.register("a", "X").id == 1
    assert world.register("a", avro("X", metadata=Metadata(properties=(("owner", "shop"),)))).id == 2


def test_a_registration_that_was_checked_before_another_is_checked_again() -> None:
    world = World()
    before = world.machine.state.revision("a")
    world.register("a", "X")
    assert world.call(Register("a", avro("Y"), 0, None, before)) == StateChanged()
    before = world.machine.state.revision("a")
    world.register("b", "Z")
    assert world.machine.state.revision("a") == before
    world.configure("b", compatibilityLevel="NONE")
    assert world.call(Register("a", avro("Y"), 0, None, before)) == StateChanged()


def test_a_version_that_is_not_the_next_is_refused() -> None:
    world = World()
    world.register("a", "X")
    with pytest.raises(SchemaRejected, match="not one more"):
        world.register("a", "Y", version=3)
    assert world.register("a", "Y", version=2).version == 2


def test_in_import_mode_clients_choose_versions_and_ids() -> None:
    world = World()
    world.set_mode("a", Mode.IMPORT)
    assert world.register("a", "X", version=7, schema_id=42).id == 42
    world.set_mode("a", Mode.READWRITE)
    assert world.register("b", "Y").id == 43
    with pytest.raises(OperationNotPermitted, match="id 42"):
        world.register("a", "Z", version=8, schema_id=42)


def test_the_registry_refuses_more_than_it_has_room_for() -> None:
    world = World(bytes_max=100)
    world.register("a", "X")
    with pytest.raises(OperationNotPermitted, match=r"schema\.registry\.bytes\.max"):
        world.register("a", "Y" * 90)
    world.delete("a")
    world.delete("a", permanent=True)
    assert world.machine.state.size_bytes == 0
    assert world.register("a", "Y" * 50).version == 1


# -- deletion


def test_a_soft_deleted_version_is_hidden_and_found_by_its_id() -> None:
    world = World()
    world.register("a", "X")
    world.register("a", "Y")
    assert world.delete("a", LATEST) == 2
    state = world.machine.state
    assert state.version("a", LATEST).version == 1  # type: ignore[union-attr]
    assert state.version("a", 2) is None
    assert [each.version for each in state.uses(".", 2)] == [2]


def test_what_is_deleted_for_good_must_be_soft_deleted_before() -> None:
    world = World()
    world.register("a", "X")
    world.register("a", "Y")
    with pytest.raises(VersionNotSoftDeleted):
        world.delete("a", 1, permanent=True)
    with pytest.raises(SubjectNotSoftDeleted):
        world.delete("a", permanent=True)
    assert world.delete("a") == [1, 2]
    with pytest.raises(SubjectSoftDeleted):
        world.delete("a")
    with pytest.raises(VersionSoftDeleted):
        world.delete("a", 1)
    assert world.delete("a", 1, permanent=True) == 1
    assert world.delete("a", permanent=True) == [2]
    with pytest.raises(SubjectNotFound):
        world.delete("a")


def test_deleting_what_does_not_exist_is_an_error() -> None:
    world = World()
    with pytest.raises(SubjectNotFound):
        world.delete("a", 1)
    world.register("a", "X")
    with pytest.raises(VersionNotFound):
        world.delete("a", 2)


def test_the_same_schema_registered_again_replaces_its_deleted_version() -> None:
    world = World()
    world.register("a", "X")
    world.delete("a")
    again = world.register("a", "X")
    assert (again.version, again.id) == (2, 1)
    assert world.shown() == {"a": [(2, 1, avro("X").text, False)]}


def test_settings_of_a_subject_go_with_its_last_version() -> None:
    world = World()
    world.register("a", "X")
    world.configure("a", compatibilityLevel="NONE")
    world.set_mode("a", Mode.READWRITE)
    world.delete("a")
    world.delete("a", 1, permanent=True)
    assert (world.machine.state.config("a"), world.machine.state.mode("a")) == (None, None)


def test_ids_are_not_used_again_after_compaction() -> None:
    world = World()
    world.register("a", "X")
    world.register("b", "Y")
    world.register(":.eu:b", "Y")
    for subject in ("b", ":.eu:b"):
        world.delete(subject)
        world.delete(subject, permanent=True)
    again = world.compacted()
    assert again.shown().keys() == {"a"}
    assert again.register("c", "Z").id == 3
    assert again.register(":.eu:c", "Z").id == 2


# -- references


@pytest.mark.parametrize("permanent", [False, True])
def test_a_schema_whose_reference_was_deleted_while_it_was_checked_is_checked_again(permanent: bool) -> None:
    world = World()
    world.register("item", "Item")
    state = world.machine.state
    order = avro("Order", Reference("Item", "item", 1))
    checked = (("item", state.subject_revision("item")),)
    for each in (False, True)[: 1 + permanent]:
        world.delete("item", 1, permanent=each)
    assert world.call(Register("order", order, 0, None, state.revision("order"), checked)) == StateChanged()
    world.register("item", "Another")  # after permanent deletion, it is version 1 again
    assert world.call(Register("order", order, 0, None, state.revision("order"), checked)) == StateChanged()
    checked = (("item", state.subject_revision("item")),)
    newer = avro("Order", Reference("Item", "item", LATEST))
    assert world.call(Register("order", newer, 0, None, state.revision("order"), checked)).version == 1


def test_a_schema_that_others_refer_to_cannot_be_deleted() -> None:
    world = World()
    world.register("item", "Item")
    world.register("order", avro("Order", Reference("Item", "item", 1)))
    assert world.machine.state.referrers_of("item", 1, deleted=False) == [(".", 2)]
    for version in (1, None):
        with pytest.raises(ReferenceExists):
            world.delete("item", version)
    world.delete("order")
    assert world.machine.state.referrers_of("item", 1, deleted=False) == []
    assert world.delete("item") == [1]
    with pytest.raises(ReferenceExists):  # the order can be restored, and then needs it
        world.delete("item", permanent=True)
    world.delete("order", permanent=True)
    assert world.delete("item", permanent=True) == [1]
    assert world.machine.state.referrers == {}


def test_references_are_to_the_same_context() -> None:
    world = World()
    world.register(":.eu:item", "Item")
    world.register(":.eu:order", avro("Order", Reference("Item", "item", 1)))
    assert world.machine.state.referrers_of(":.eu:item", 1, deleted=False) == [(".eu", 2)]


def test_a_subject_that_refers_to_itself_can_be_deleted() -> None:
    world = World()
    world.register("a", "X")
    world.register("a", avro("Y", Reference("X", "a", 1)))
    with pytest.raises(ReferenceExists):
        world.delete("a", 1)
    assert world.delete("a") == [1, 2]
    assert world.delete("a", permanent=True) == [1, 2]


# -- settings


def test_a_config_applies_to_subject_context_and_all() -> None:
    state = (world := World()).machine.state
    assert state.config_in_scope("a").level is Level.BACKWARD
    world.configure(None, compatibilityLevel="FULL", normalize=True)
    world.configure(":.eu:", compatibilityLevel="FORWARD")
    world.configure("a", compatibilityLevel="none")
    assert [state.config_in_scope(each).level for each in ("a", "b", ":.eu:a", ":.us:a")] == [
        Level.NONE,
        Level.FULL,
        Level.FORWARD,
        Level.BACKWARD,
    ]
    assert [state.config_in_scope(each).normalize for each in ("a", ":.eu:a")] == [True, None]
    world.configure(":.__GLOBAL:", compatibilityLevel="FULL_TRANSITIVE")
    assert state.config_in_scope(":.us:a").level is Level.FULL_TRANSITIVE


def test_a_config_is_changed_by_setting_and_removed_by_null() -> None:
    world = World()
    world.configure("a", compatibilityLevel="FULL", alias="b")
    assert world.configure("a", alias=None).json() == {"compatibilityLevel": "FULL"}
    assert world.call(DeleteConfig("a")).json() == {"compatibilityLevel": "FULL"}
    with pytest.raises(SubjectNotFound):
        world.call(DeleteConfig("a"))
    with pytest.raises(InvalidCompatibilityLevel):
        world.configure("a", compatibilityLevel="SOME")


def test_a_read_only_subject_cannot_be_changed() -> None:
    world = World()
    world.register("a", "X")
    world.set_mode(None, Mode.READONLY)
    for change in (
        lambda: world.delete("a"),
        lambda: world.delete("a", 1),
        lambda: world.configure("a", compatibilityLevel="NONE"),
        lambda: world.configure(None, compatibilityLevel="NONE"),
    ):
        with pytest.raises(OperationNotPermitted, match="read-only"):
            change()
    world.set_mode("a", Mode.READWRITE)
    assert world.delete("a") == [1]


def test_import_mode_needs_a_scope_without_subjects() -> None:
    world = World()
    world.register("a", "X")
    with pytest.raises(OperationNotPermitted, match="existing subjects"):
        world.set_mode(None, Mode.IMPORT)
    assert world.set_mode(":.eu:", Mode.IMPORT) is Mode.IMPORT
    world.delete("a")
    world.set_mode("a", Mode.IMPORT)
    assert world.shown() == {}
    assert world.compacted().register("b", "Z").id == 2


def test_modes_of_a_context_are_removed_together() -> None:
    world = World()
    for scope in (":.eu:", ":.eu:a", "b"):
        world.set_mode(scope, Mode.READONLY)
    assert world.call(DeleteMode(":.eu:", True)) is Mode.READONLY
    assert world.machine.state.modes == {"b": Mode.READONLY}
    with pytest.raises(SubjectNotFound):
        world.call(DeleteMode("c", False))


def test_only_an_empty_context_is_removed() -> None:
    world = World()
    world.register(":.eu:a", "X")
    with pytest.raises(ContextNotEmpty):
        world.call(DeleteContext(".eu"))
    world.delete(":.eu:a")
    world.delete(":.eu:a", permanent=True)
    world.call(DeleteContext(".eu"))
    assert world.machine.state.contexts == set()


# -- any history


class AnyHistory(RuleBasedStateMachine):
    """Any sequence of changes: what the log says is the state, and ids and versions never change their meaning."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.meaning: dict[tuple[str, int], str] = {}
        self.numbers: dict[tuple[str, int], str] = {}

    subjects = st.sampled_from(("a", "b", ":.eu:a"))
    schemas = st.sampled_from(("X", "Y", "Z"))

    @rule(subject=subjects, name=schemas)
    def register(self, subject: str, name: str) -> None:
        self._register(subject, avro(name).text, name)

    @rule(subject=subjects, name=schemas)
    def register_with_reference(self, subject: str, name: str) -> None:
        if self.world.machine.state.version(subject, 1) is not None:
            self._register(subject, avro(name).text + "+", avro(name, Reference("r", subject, 1)))

    def _register(self, subject: str, text: str, schema: object) -> None:
        try:
            found = self.world.register(subject, schema)  # type: ignore[arg-type]
        except RegistryError:
            return
        context = ".eu" if subject.startswith(":.eu:") else "."
        assert self.meaning.setdefault((context, found.id), text) == text, "an id was used again"

    @rule(subject=subjects, version=st.sampled_from((None, 1, 2, LATEST)), permanent=st.booleans())
    def delete(self, subject: str, version: int | None, permanent: bool) -> None:
        with contextlib.suppress(RegistryError):
            self.world.delete(subject, version, permanent=permanent)

    @rule()
    def restart(self) -> None:
        self.world = self.world.replayed()

    @rule()
    def compact(self) -> None:
        before = self.world.shown()
        self.world = self.world.compacted()
        assert self.world.shown() == before

    @invariant()
    def the_log_tells_all(self) -> None:
        state, again = self.world.machine.state, self.world.replayed().machine.state
        assert (again.subjects, again.visible) == (state.subjects, state.visible)
        assert (again.count, again.size_bytes, again.referrers) == (state.count, state.size_bytes, state.referrers)
        assert {c: i.uses for c, i in again.ids.items()} == {c: i.uses for c, i in state.ids.items()}
        assert all(again.next_id(context) == state.next_id(context) for context in (".", ".eu"))

    @invariant()
    def visible_subjects_have_a_version(self) -> None:
        state = self.world.machine.state
        visible = {name for name in state.subjects if state.version(name, LATEST) is not None}
        assert set(state.visible) == visible


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = examples(60, stateful_step_count=30, deadline=None)


def test_reading_changes_nothing() -> None:
    world = World()
    world.register("a", "X")
    length = len(world.log)
    assert world.call(Read(lambda state: list(state.visible))) == ["a"]
    assert len(world.log) == length
