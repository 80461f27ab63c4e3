"""The REST API of the schema registry answers as Confluent's does: paths, codes, bodies."""

import json
from collections.abc import Callable

import pytest

from tests.brokers import BrokerProcess

from .rest_client import RestClient, record

ID = record("id:long")
ID_AND_TAG = record("id:long", 'tag:string=""')
TAG_WITHOUT_DEFAULT = record("id:long", "tag:string")


def test_a_schema_is_registered_once(rest: RestClient, subject: str) -> None:
    first = rest.register(subject, ID)
    assert first.status == 200
    assert first.body["version"] == 1
    assert rest.register(subject, ID).body["id"] == first.body["id"]
    assert rest.register(subject, f"  {json.dumps(json.loads(ID), indent=2)}").body["id"] == first.body["id"]
    assert rest.get(f"/subjects/{subject}/versions").body == [1]


def test_a_schema_is_found_by_id_version_guid_and_text(rest: RestClient, subject: str) -> None:
    registered = rest.register(subject, ID).body
    number, guid = registered["id"], registered["guid"]
    by_id = rest.get(f"/schemas/ids/{number}").body
    assert (by_id["schema"], by_id["guid"], by_id["schemaType"]) == (ID, guid, "AVRO")
    by_version = rest.get(f"/subjects/{subject}/versions/1").body
    assert (by_version["subject"], by_version["version"], by_version["id"]) == (subject, 1, number)
    assert rest.get(f"/subjects/{subject}/versions/latest").body == by_version
    assert rest.get(f"/subjects/{subject}/versions/-1").body == by_version
    assert rest.get(f"/schemas/guids/{guid}").body["schema"] == ID
    assert rest.get(f"/schemas/guids/{guid}/ids").body == [{"context": ".", "id": number}]
    assert rest.get(f"/subjects/{subject}/versions/1/schema").body == json.loads(ID)
    assert rest.get(f"/schemas/ids/{number}/schema").body == json.loads(ID)
    assert rest.post(f"/subjects/{subject}", {"schema": ID}).body["version"] == 1
    assert {"subject": subject, "version": 1} in rest.get(f"/schemas/ids/{number}/versions").body
    assert subject in rest.get(f"/schemas/ids/{number}/subjects").body


def test_what_does_not_exist_is_not_found(rest: RestClient, subject: str) -> None:
    assert rest.get("/schemas/ids/999999").code == 40403
    assert rest.get("/schemas/guids/00000000-0000-0000-0000-000000000000").code == 40403
    assert rest.get(f"/subjects/{subject}/versions").code == 40401
    assert rest.get(f"/subjects/{subject}/versions/1").code == 40401
    assert rest.post(f"/subjects/{subject}", {"schema": ID}).code == 40401
    rest.register(subject, ID)
    assert rest.get(f"/subjects/{subject}/versions/7").code == 40402
    assert rest.get(f"/subjects/{subject}/versions/x").code == 42202
    assert rest.get(f"/subjects/{subject}/versions/0").code == 42202
    assert rest.post(f"/subjects/{subject}", {"schema": ID_AND_TAG}).code == 40403
    assert rest.get(f"/config/{subject}").code == 40408
    assert rest.get(f"/mode/{subject}").code == 40409
    assert rest.get("/nothing").code == 404
    assert rest.ask("PUT", "/subjects").code == 405


def test_an_incompatible_schema_is_refused_with_the_reason(rest: RestClient, subject: str) -> None:
    rest.register(subject, ID)
    refused = rest.register(subject, TAG_WITHOUT_DEFAULT)
    assert (refused.status, refused.code) == (409, 409)
    message = refused.body["message"]
    assert message.startswith(
        f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "{compatibility" not in message
    assert "compatibility: 'BACKWARD'" in message
    assert rest.register(subject, ID_AND_TAG).body["version"] == 2


@pytest.mark.parametrize(
    ("level", "accepts"),
    [
        ("NONE", {"drops", "adds required", "adds optional"}),
        ("BACKWARD", {"drops", "adds optional"}),
        ("FORWARD", {"adds required", "adds optional"}),
        ("FULL", {"adds optional"}),
        ("BACKWARD_TRANSITIVE", {"drops", "adds optional"}),
        ("FORWARD_TRANSITIVE", {"adds required", "adds optional"}),
        ("FULL_TRANSITIVE", {"adds optional"}),
    ],
)
def test_each_compatibility_level_accepts_its_changes(
    rest: RestClient, new_name: Callable[[], str], level: str, accepts: set[str]
) -> None:
    before = record("id:long", "tag:string")
    changes = {
        "drops": record("id:long"),
        "adds required": record("id:long", "tag:string", "more:int"),
        "adds optional": record("id:long", "tag:string", "more:int=0"),
    }
    found = set()
    for name, after in changes.items():
        subject = new_name()
        rest.register(subject, before)
        assert rest.put(f"/config/{subject}", {"compatibility": level}).body == {"compatibility": level}
        checked = rest.post(f"/compatibility/subjects/{subject}/versions/latest?verbose=true", {"schema": after}).body
        registered = rest.register(subject, after)
        assert checked["is_compatible"] == (registered.status == 200)
        assert bool(checked["messages"]) != checked["is_compatible"]
        found |= {name} if registered.status == 200 else set()
    assert found == accepts


def test_a_transitive_level_looks_at_all_versions(rest: RestClient, subject: str) -> None:
    """The first version has no tag, the second an optional one: a required one is compatible with the second only."""
    rest.register(subject, ID)
    rest.register(subject, ID_AND_TAG)
    check = f"/compatibility/subjects/{subject}/versions"
    assert rest.post(f"{check}/latest", {"schema": TAG_WITHOUT_DEFAULT}).body == {"is_compatible": True}
    assert rest.post(f"{check}/1", {"schema": TAG_WITHOUT_DEFAULT}).body == {"is_compatible": False}
    assert rest.post(check, {"schema": TAG_WITHOUT_DEFAULT}).body == {"is_compatible": True}
    rest.put(f"/config/{subject}", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert rest.post(check, {"schema": TAG_WITHOUT_DEFAULT}).body == {"is_compatible": False}
    assert rest.register(subject, TAG_WITHOUT_DEFAULT).code == 409


def test_settings_are_set_and_removed(rest: RestClient, subject: str) -> None:
    assert rest.put(f"/config/{subject}", {"compatibility": "full"}).body == {"compatibility": "FULL"}
    assert rest.get(f"/config/{subject}").body == {"compatibilityLevel": "FULL"}
    assert rest.delete(f"/config/{subject}").body == {"compatibilityLevel": "FULL"}
    assert rest.get(f"/config/{subject}?defaultToGlobal=true").body == rest.get("/config").body
    assert rest.put(f"/config/{subject}", {"compatibility": "SOME"}).code == 42203
    assert rest.put(f"/mode/{subject}", {"mode": "READONLY"}).body == {"mode": "READONLY"}
    assert rest.register(subject, ID).code == 42205
    assert rest.delete(f"/mode/{subject}").body == {"mode": "READONLY"}
    assert rest.put(f"/mode/{subject}", {"mode": "SOME"}).code == 42204
    assert rest.register(subject, ID).status == 200


def test_versions_are_deleted_softly_and_for_good(rest: RestClient, subject: str) -> None:
    number = rest.register(subject, ID).body["id"]
    rest.register(subject, ID_AND_TAG)
    assert rest.delete(f"/subjects/{subject}/versions/1?permanent=true").code == 40407
    assert rest.delete(f"/subjects/{subject}/versions/1").body == 1
    assert rest.get(f"/subjects/{subject}/versions").body == [2]
    assert rest.get(f"/subjects/{subject}/versions?deleted=true").body == [1, 2]
    assert rest.get(f"/subjects/{subject}/versions?deletedAsNegative=true").body == [-1, 2]
    assert rest.get(f"/subjects/{subject}/versions/1").code == 40402
    assert rest.get(f"/subjects/{subject}/versions/1?deleted=true").body["deleted"] is True
    assert rest.get(f"/schemas/ids/{number}").status == 200
    assert rest.delete(f"/subjects/{subject}/versions/1").code == 40406
    assert rest.delete(f"/subjects/{subject}?permanent=true").code == 40405
    assert rest.delete(f"/subjects/{subject}").body == [2]
    assert rest.delete(f"/subjects/{subject}").code == 40404
    assert subject not in rest.get("/subjects").body
    assert subject in rest.get("/subjects?deletedOnly=true").body
    assert rest.delete(f"/subjects/{subject}?permanent=true").body == [1, 2]
    assert rest.delete(f"/subjects/{subject}").code == 40401


def test_references_are_resolved_and_protected(rest: RestClient, new_name: Callable[[], str]) -> None:
    item, order = new_name(), new_name()
    rest.register(item, record("sku:string", name="Item"))
    text = record("id:long", "item:Item")
    assert rest.register(order, text).code == 42201
    missing = [{"name": "Item", "subject": item, "version": 9}]
    assert "No schema reference found" in rest.register(order, text, references=missing).body["message"]
    references = [{"name": "Item", "subject": item, "version": 1}]
    number = rest.register(order, text, references=references).body["id"]
    assert rest.get(f"/schemas/ids/{number}").body["references"] == references
    assert rest.get(f"/subjects/{item}/versions/1/referencedby").body == [number]
    assert rest.delete(f"/subjects/{item}").code == 42206
    assert rest.delete(f"/subjects/{order}").body == [1]
    assert rest.delete(f"/subjects/{item}").body == [1]


def test_a_schema_with_its_references_inlined_is_the_same(rest: RestClient, new_name: Callable[[], str]) -> None:
    """Clients of Avro send the whole schema, also where it was registered with references."""
    item, order = new_name(), new_name()
    rest.register(item, record("sku:string", name="Item"))
    references = [{"name": "Item", "subject": item, "version": 1}]
    number = rest.register(order, record("id:long", "item:Item"), references=references).body["id"]
    whole = json.loads(record("id:long"))
    whole["fields"].append({"name": "item", "type": json.loads(record("sku:string", name="Item"))})
    assert rest.register(order, json.dumps(whole)).body["id"] == number
    assert rest.post(f"/subjects/{order}", {"schema": json.dumps(whole)}).body["id"] == number


def test_contexts_separate_ids_and_subjects(rest: RestClient, new_name: Callable[[], str]) -> None:
    name, context = new_name(), new_name()
    rest.register(name, ID)
    assert rest.post(f"/contexts/{context}/subjects/{name}/versions", {"schema": ID_AND_TAG}).body["id"] == 1
    qualified = f":.{context}:{name}"
    assert rest.get("/contexts").body[0] == "."
    assert f".{context}" in rest.get("/contexts").body
    assert rest.get(f"/subjects?subjectPrefix=:.{context}:").body == [qualified]
    assert rest.get(f"/contexts/{context}/subjects").body == [qualified]
    assert rest.get(f"/contexts/{context}/schemas/ids/1").body["schema"] == ID_AND_TAG
    assert rest.get(f"/subjects/{qualified}/versions/1").body["schema"] == ID_AND_TAG
    assert name in rest.get("/subjects?subjectPrefix=:*:").body
    assert rest.put(f"/contexts/{context}/config", {"compatibility": "NONE"}).status == 200
    assert rest.get(f"/config/{qualified}?defaultToGlobal=true").body == {"compatibilityLevel": "NONE"}


def test_a_data_contract_is_kept_and_inherited(rest: RestClient, subject: str) -> None:
    rules = {"domainRules": [{"name": "positive", "kind": "CONDITION", "type": "CEL", "expr": "message.id > 0"}]}
    first = rest.register(subject, ID, metadata={"properties": {"owner": "shop"}}, ruleSet=rules).body
    assert first["metadata"] == {"properties": {"owner": "shop"}}
    assert first["ruleSet"]["domainRules"][0]["mode"] == "WRITEREAD"
    second = rest.register(subject, ID_AND_TAG).body
    assert (second["metadata"], second["ruleSet"]) == (first["metadata"], first["ruleSet"])
    found = rest.get(f"/subjects/{subject}/metadata?key=owner&value=shop").body
    assert found["version"] == 2
    assert rest.get(f"/subjects/{subject}/metadata?key=owner&value=other").code == 40403
    assert rest.register(subject, ID, ruleSet={"domainRules": [{"name": "9", "type": "CEL"}]}).code == 42210


def test_schemas_are_imported_with_their_ids(rest: RestClient, new_name: Callable[[], str]) -> None:
    context = new_name()
    path = f"/subjects/:.{context}:orders/versions"
    assert rest.post(path, {"schema": ID, "id": 77}).code == 42205
    rest.put(f"/mode/:.{context}:", {"mode": "IMPORT"})
    assert rest.post(path, {"schema": ID, "id": 77, "version": 5}).body["id"] == 77
    rest.put(f"/mode/:.{context}:", {"mode": "READWRITE"})
    assert rest.post(path, {"schema": ID_AND_TAG}).body["id"] == 78
    assert rest.get(f"/contexts/{context}/schemas/ids/78").body["schema"] == ID_AND_TAG


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[1]", 422),
        (b'{"schema":1}', 422),
        (b'{"schema":""}', 42201),
        (b'{"schema":"nonsense"}', 42201),
        (b'{"schema":"\\"string\\"","schemaType":"XML"}', 42201),
        (b'{"schema":"\\"string\\"","references":[{"name":"x"}]}', 42201),
        (b'{"schema":"\\"string\\"","references":{}}', 422),
        (b'{"schema":"\\"string\\"","version":"x"}', 422),
        (b'{"schema":"\\"string\\"","id":99999999999}', 422),
        (b"[" * 100_000, 400),
    ],
)
def test_a_malformed_request_is_refused(rest: RestClient, subject: str, body: bytes, code: int) -> None:
    assert rest.ask("POST", f"/subjects/{subject}/versions", body).code == code


def test_the_registry_survives_a_killed_broker(own_broker: BrokerProcess) -> None:
    rest = RestClient(own_broker.http)
    number = rest.register("orders", ID).body["id"]
    rest.register("gone", record("x:int"))
    rest.put("/config/orders", {"compatibility": "NONE"})
    rest.delete("/subjects/gone")
    rest.delete("/subjects/gone?permanent=true")
    own_broker.kill()
    own_broker.start()
    rest = RestClient(own_broker.http)
    assert rest.get(f"/schemas/ids/{number}").body["schema"] == ID
    assert rest.get("/config/orders").body == {"compatibilityLevel": "NONE"}
    assert rest.get("/subjects?deleted=true").body == ["orders"]
    assert rest.register("orders", TAG_WITHOUT_DEFAULT).body["id"] == number + 2


def test_clients_cannot_write_to_the_topic(own_broker: BrokerProcess) -> None:
    from confluent_kafka import KafkaException, Producer
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    rest = RestClient(own_broker.http)
    rest.register("orders", ID)
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": own_broker.kafka})
    producer.produce("_schemas", b"x", b"y", on_delivery=lambda error, message: errors.append(error))
    producer.flush(60)
    assert [str(error.code()) for error in errors if error is not None] == ["17"], errors  # INVALID_TOPIC
    admin = AdminClient({"bootstrap.servers": own_broker.kafka})
    with pytest.raises(KafkaException):
        admin.delete_topics(["_schemas"])["_schemas"].result(60)
    resource = ConfigResource(ResourceType.TOPIC, "_schemas")
    resource.add_incremental_config(
        ConfigEntry("write.access", "clients", incremental_operation=AlterConfigOpType.SET)
    )
    next(iter(admin.incremental_alter_configs([resource]).values())).result(60)
    answer = rest.get("/subjects")
    assert (answer.status, "write.access" in answer.body["message"]) == (500, True)
