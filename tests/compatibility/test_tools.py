"""Every command of Kafka's own tools once: it works, or says what it says where Kafka lacks the same thing.

Not here: kafka-streams-groups (test_streams.py), Connect and MirrorMaker, and tools that look at files or processes
of Kafka's own brokers (kafka-dump-log, kafka-storage, kafka-jmx, kafka-metadata-shell).
"""

import json
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.brokers import BrokerProcess
from tests.clients.token_lab import PLAIN_MODULE, settings_of, token_properties
from tests.clients.waiting import wait_until

from .conftest import Target
from .toolchains import KAFKA, Program, java, java_classpath

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOOLS = "org.apache.kafka.tools"
TIMEOUT_S = 180.0


@pytest.fixture(scope="module")
def classpath() -> str:
    return java_classpath(*(f"org.apache.kafka:{name}:{KAFKA}" for name in ("kafka-tools", "kafka_2.13")))


class Tool:
    """Runs tools against a target, one after the other."""

    def __init__(self, target: Target, classpath: str, folder: Path) -> None:
        self._target, self._classpath = target, classpath
        self.folder = folder

    def __call__(self, name: str, *arguments: str, text: str = "", first: tuple[str, ...] = ()) -> str:
        """What a tool says. AssertionError if it does not end with 0. `first`: arguments before the address."""
        main = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
        command = java(self._classpath, main, *first, "--bootstrap-server", self._target.bootstrap, *arguments)
        done = subprocess.run(
            command, cwd=self.folder, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{name} {arguments} ended with {done.returncode}:\n{said}"
        return said

    @contextmanager
    def running(self, name: str, *arguments: str) -> Iterator[None]:
        """Runs a tool until the block ends."""
        command = java(self._classpath, f"{TOOLS}.{name}", "--bootstrap-server", self._target.bootstrap, *arguments)
        program = Program(command, self.folder / f"{name}.log", folder=self.folder).start()
        try:
            yield
            assert program.is_running, program.lines[-20:]
        finally:
            program.kill()

    def refused(self, name: str, *arguments: str) -> str:
        """What a tool says that cannot do what it is asked for."""
        command = java(self._classpath, f"{TOOLS}.{name}", "--bootstrap-server", self._target.bootstrap, *arguments)
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr

    def file(self, name: str, content: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return str(path)


@pytest.fixture
def tool(target: Target, classpath: str, tmp_path: Path) -> Tool:
    return Tool(target, classpath, tmp_path)


def test_topics(tool: Tool) -> None:
    assert "Created topic orders" in tool("TopicCommand", "--create", "--topic", "orders", "--partitions", "3")
    assert "orders" in tool("TopicCommand", "--list").split()
    tool("TopicCommand", "--alter", "--topic", "orders", "--partitions", "4")
    described = tool("TopicCommand", "--describe", "--topic", "orders")
    assert "PartitionCount: 4" in described
    assert described.count("Partition: ") == 4
    assert "orders" not in tool("TopicCommand", "--describe", "--under-replicated-partitions")
    tool("TopicCommand", "--delete", "--topic", "orders")
    assert "orders" not in tool("TopicCommand", "--list").split()


def test_configs(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "configs")
    entity = ("--entity-type", "topics", "--entity-name", "configs")
    changed = tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=1000,flush.ms=5")
    assert "Completed updating config for topic configs" in changed
    described = tool("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms=1000" in described
    assert "flush.ms=5" in described
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms,flush.ms")
    assert "retention.ms=1000" not in tool("kafka.admin.ConfigCommand", "--describe", *entity)
    brokers = ("--entity-type", "brokers", "--entity-default")
    tool("kafka.admin.ConfigCommand", "--alter", *brokers, "--add-config", "log.retention.ms=777000000")
    assert "log.retention.ms=777000000" in tool("kafka.admin.ConfigCommand", "--describe", *brokers)
    tool("kafka.admin.ConfigCommand", "--alter", *brokers, "--delete-config", "log.retention.ms")
    assert "listeners=" in tool("kafka.admin.ConfigCommand", "--describe", "--all", "--entity-type", "brokers")
    for kind in ("users", "clients", "client-metrics", "groups"):
        tool("kafka.admin.ConfigCommand", "--describe", "--entity-type", kind)


def test_messages_and_offsets(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "lines", "--partitions", "1")
    tool("ConsoleProducer", "--topic", "lines", text="one\ntwo\nthree\n")
    consumer = ("--topic", "lines", "--from-beginning", "--max-messages", "3", "--group", "readers")
    assert tool("consumer.ConsoleConsumer", *consumer).splitlines()[:3] == ["one", "two", "three"]
    assert "lines:0:3" in tool("GetOffsetShell", "--topic", "lines")
    assert "lines:0:0" in tool("GetOffsetShell", "--topic", "lines", "--time", "earliest")
    cut = {"partitions": [{"topic": "lines", "partition": 0, "offset": 2}], "version": 1}
    assert "low_watermark: 2" in tool("DeleteRecordsCommand", "--offset-json-file", tool.file("cut.json", cut))
    assert "lines:0:2" in tool("GetOffsetShell", "--topic", "lines", "--time", "earliest")


def test_groups(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "read", "--partitions", "1")
    tool("ConsoleProducer", "--topic", "read", text="one\ntwo\n")
    tool("consumer.ConsoleConsumer", "--topic", "read", "--from-beginning", "--max-messages", "2", "--group", "g")
    groups = "consumer.group.ConsumerGroupCommand"
    assert "g" in tool(groups, "--list").split()
    assert "Empty" in tool(groups, "--list", "--state")
    described = tool(groups, "--describe", "--group", "g")
    assert "read" in described
    assert "Empty" in tool(groups, "--describe", "--group", "g", "--state")
    tool(groups, "--describe", "--group", "g", "--members", "--verbose")
    reset = ("--group", "g", "--topic", "read", "--reset-offsets", "--to-earliest")
    assert "read" in tool(groups, *reset, "--dry-run")
    tool(groups, *reset, "--execute")
    assert "2" in tool(groups, "--describe", "--group", "g").split(), "both messages are to be read again"
    tool(groups, "--group", "g", "--topic", "read:0", "--delete-offsets")
    assert "g" in tool("GroupsCommand", "--list").split()
    assert "successful" in tool(groups, "--delete", "--group", "g")
    assert "g" not in tool(groups, "--list").split()


def test_share_groups(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "shared", "--partitions", "1")
    entity = ("--entity-type", "groups", "--entity-name", "s")
    tool("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "share.auto.offset.reset=earliest")
    tool("ConsoleProducer", "--topic", "shared", text="one\ntwo\n")
    said = tool("consumer.ConsoleShareConsumer", "--topic", "shared", "--group", "s", "--max-messages", "2")
    assert {"one", "two"} <= set(said.split())
    groups = "consumer.group.ShareGroupCommand"
    assert "s" in tool(groups, "--list").split()
    assert "shared" in tool(groups, "--describe", "--group", "s")
    tool(groups, "--describe", "--group", "s", "--state")
    tool(groups, "--describe", "--group", "s", "--members")
    tool(groups, "--group", "s", "--topic", "shared", "--reset-offsets", "--to-earliest", "--execute")
    tool(groups, "--group", "s", "--topic", "shared", "--delete-offsets")
    assert "successful" in tool(groups, "--delete", "--group", "s")


def test_reassignments_and_elections(tool: Tool, target: Target) -> None:
    tool("TopicCommand", "--create", "--topic", "moved", "--replica-assignment", "1")
    to = [2] if target.replicas > 1 else [1]
    plan = {"partitions": [{"topic": "moved", "partition": 0, "replicas": to}], "version": 1}
    command, file = "reassign.ReassignPartitionsCommand", tool.file("plan.json", plan)
    topics = tool.file("topics.json", {"topics": [{"topic": "moved"}], "version": 1})
    generated = tool(command, "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
    assert "Proposed partition reassignment configuration" in generated
    said = tool(command, "--execute", "--reassignment-json-file", file, "--throttle", "1000000")
    assert "Successfully started partition reassignment" in said
    tool(command, "--list")
    for _ in range(20):
        said = tool(command, "--verify", "--reassignment-json-file", file)
        if "is completed" in said:
            break
    assert "Clearing topic-level throttles on topic moved" in said
    elected = ("--election-type", "preferred", "--topic", "moved", "--partition", "0")
    assert "moved-0" in tool("LeaderElectionCommand", *elected)


def test_describing_the_cluster(tool: Tool, target: Target) -> None:
    versions = tool("BrokerApiVersionsCommand")
    assert versions.count("Produce(0)") == target.replicas
    assert "StreamsGroupHeartbeat(88): 0" in versions
    assert "Cluster ID: " in tool("ClusterTool", first=("cluster-id",))
    assert "logDirs" in tool("LogDirsCommand", "--describe")
    assert "Feature: group.version" in tool("FeatureCommand", "describe")


def test_transactions(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "txn", "--partitions", "1")
    perf = ("--num-records", "20", "--record-size", "10", "--throughput", "-1", "--transactional-id", "perf")
    said = tool("ProducerPerformance", "--topic", "txn", *perf, "--transaction-duration-ms", "50")
    assert "20 records sent" in said
    assert "perf" in tool("TransactionsCommand", "list")
    assert "perf" in tool("TransactionsCommand", "describe", "--transactional-id", "perf")
    assert "ProducerId" in tool("TransactionsCommand", "describe-producers", "--topic", "txn", "--partition", "0")
    tool("TransactionsCommand", "find-hanging", "--topic", "txn")


def test_performance_tools_and_verifiable_clients(tool: Tool) -> None:
    tool("TopicCommand", "--create", "--topic", "perf", "--partitions", "1")
    sent = ("--num-records", "200", "--record-size", "50", "--throughput", "-1")
    assert "200 records sent" in tool("ProducerPerformance", "--topic", "perf", *sent)
    assert ", 200, " in tool("ConsumerPerformance", "--topic", "perf", "--num-records", "200", "--hide-header")
    said = tool("VerifiableProducer", "--topic", "perf", "--max-messages", "5")
    assert '"sent":5' in said.replace(" ", "")
    consumed = tool("VerifiableConsumer", "--topic", "perf", "--group-id", "v", "--max-messages", "5")
    assert "records_consumed" in consumed


def test_metrics_of_clients(tool: Tool, target: Target) -> None:
    which = ("--name", "mine", "--metrics", "org.apache.kafka.producer.", "--interval", "500")
    tool("ClientMetricsCommand", "--alter", *which, "--match", "client_id=measured")
    assert "mine" in tool("ClientMetricsCommand", "--list").splitlines()
    described = tool("ClientMetricsCommand", "--describe", "--name", "mine")
    assert all(text in described for text in ("interval.ms=500", "match=client_id=measured", "producer."))
    tool("TopicCommand", "--create", "--topic", "measured", "--partitions", "1")
    sent = ("--num-records", "100000", "--record-size", "50", "--throughput", "100")
    named = ("--topic", "measured", "--command-property", "client.id=measured")
    with tool.running("ProducerPerformance", *named, *sent):
        total = 'penstock_client_producer_topic_record_send_total{.*client_id="measured".*topic="measured".*} [1-9]'
        wait_until(lambda: re.search(total, metrics_of(target)), "the Java client pushes its metrics")
        info = 'penstock_client_info{client_id="measured".*client_software_name="apache-kafka-java"'
        assert re.search(info, metrics_of(target))
    tool("ClientMetricsCommand", "--delete", "--name", "mine")
    assert "mine" not in tool("ClientMetricsCommand", "--list").splitlines()


def metrics_of(target: Target) -> str:
    """The metrics of all brokers: a client pushes to any of them."""
    texts = []
    for http in target.all_http:
        with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
            texts.append(answer.read().decode())
    return "\n".join(texts)


def test_delegation_tokens(classpath: str, tmp_path: Path) -> None:
    """A token is created, given to a producer and a consumer, renewed and expired."""
    broker = BrokerProcess(tmp_path, settings_of(("ann", "bob")), listeners={"SASL": "SASL_PLAINTEXT"}).start()
    tool = Tool(Target(broker.kafka, broker.http, 1, (broker.http,)), classpath, tmp_path)

    def config(name: str, given: dict[str, str]) -> tuple[str, str]:
        file = tmp_path / f"{name}.properties"
        file.write_text("\n".join(f"{key}={value}" for key, value in given.items()))
        return "--command-config", str(file)

    def tokens(said: str) -> dict[str, list[str]]:
        """The columns of each token in a table of the tool, by id."""
        rows = [line.split() for line in said.splitlines() if re.match(r"\S{22} +\S{86}== ", line)]
        return {row[0]: row[1:] for row in rows}

    def manage(user: str, *arguments: str) -> str:
        jaas = f'{PLAIN_MODULE} username="{user}" password="{user}";'
        given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        return tool("DelegationTokenCommand", *arguments, *config(user, given))

    made = tokens(manage("ann", "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"))
    ((token, (password, owner, requester, renewers, *_)),) = made.items()
    assert (owner, requester, renewers) == ("User:ann", "User:ann", "[User:bob]")
    # Without --owner-principal, the tool asks for the tokens of no owner.
    describing = ("--describe", "--owner-principal", "User:ann")
    assert tokens(manage("bob", *describing)) == made
    assert tokens(manage("bob", "--describe", "--owner-principal", "User:zoe")) == {}
    with_token = config("token", token_properties(token, password, "SCRAM-SHA-512"))
    tool("TopicCommand", "--create", "--topic", "by-token", *with_token)
    tool("ConsoleProducer", "--topic", "by-token", *with_token, text="hello\n")
    reading = ("--topic", "by-token", "--group", "g", "--from-beginning", "--max-messages", "1")
    assert "hello" in tool("consumer.ConsoleConsumer", *reading, *with_token)
    refused = tool.refused("DelegationTokenCommand", "--describe", *with_token)
    assert "DelegationTokenDisabledException" not in refused
    assert "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels" in refused
    said = manage("bob", "--renew", "--hmac", password, "--renew-time-period", "3600000")
    assert "Completed renew operation. New expiry date" in said
    said = manage("ann", "--expire", "--hmac", password, "--expiry-time-period", "-1")
    assert "Completed expire operation. New expiry date" in said
    assert tokens(manage("ann", *describing)) == {}
    broker.finish()


def test_tools_that_need_security_or_kraft_report_that(tool: Tool) -> None:
    assert "No Authorizer is configured" in tool.refused("AclCommand", "--list")
    assert "DelegationToken" in tool.refused(
        "DelegationTokenCommand", "--describe", "--command-config", tool.file("empty.properties", {})
    )
    said = tool.refused("MetadataQuorumCommand", "describe", "--status")
    assert "UnsupportedVersionException: brokers form no quorum here" in said
