"""Spark reads and writes over SASL_SSL; only the driver has the files and the password."""

import asyncio
import pickle
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from pyspark.sql import SparkSession

import penstock
from penstock.client.cluster import ClientSettings, KafkaClient
from penstock.client.connection import ConnectionSettings
from penstock.client.delegation_tokens import DelegationTokenInfo, DelegationTokens
from penstock.client.security import SecuritySettings
from penstock.spark.options import Options, client_settings_of
from penstock.spark.pipelines.catalogue import check_clusters, load
from penstock.spark.pipelines.runner import run_in
from penstock.spark.read_options import READ_OPTIONS
from tests.brokers import BrokerProcess
from tests.certificates import Certificates
from tests.clients.driver_confluent import QUIET
from tests.clients.waiting import PATIENCE_S

USER, PASSWORD = "spark", "a-secret-of-spark"


class Secure:
    """A broker whose clients log in over TLS."""

    def __init__(self, folder: Path, start: Callable[..., BrokerProcess]) -> None:
        self.made = Certificates(folder / "certificates")
        self._secret = folder / "password"
        self._secret.write_text(PASSWORD)
        self.broker = start(
            {"ssl.keystore.location": str(self.made.server()), "delegation.token.secret.key": "of-the-brokers"},
            listeners={"OPEN": "PLAINTEXT", "SECURE": "SASL_SSL"},
        )
        admin = AdminClient({"bootstrap.servers": self.broker.kafka, **QUIET})
        change = UserScramCredentialUpsertion(
            USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
        )
        admin.alter_user_scram_credentials([change])[USER].result(PATIENCE_S)

    @property
    def properties(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.made.trust),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": f"${{file:{self._secret}}}",
        }

    def with_token(self) -> dict[str, str]:
        """Creates a delegation token; returns the options of a job that logs in with it."""

        async def create() -> DelegationTokenInfo:
            connection = ConnectionSettings(security=SecuritySettings.parse(self.properties))
            async with KafkaClient(
                self.broker.at["SECURE"], settings=ClientSettings(connection=connection)
            ) as client:
                return await DelegationTokens(client).create()

        token = asyncio.run(create())
        password = b64encode(token.hmac).decode()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        jaas = f'{module} required username="{token.token_id}" password="{password}" tokenauth="true";'
        known = {name: text for name, text in self.options.items() if not name.startswith("kafka.sasl.")}
        return {**known, "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": jaas}

    @property
    def options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.properties.items()}
        return {"kafka.bootstrap.servers": self.broker.at["SECURE"], **options}


@pytest.fixture
def secure(tmp_path: Path, own_broker: Callable[..., BrokerProcess]) -> Secure:
    return Secure(tmp_path, own_broker)


def test_rows_are_written_and_read_over_sasl_ssl(
    secure: Secure, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with penstock.connect(secure.broker.at["SECURE"], security=secure.properties) as mq:
        mq.publish("orders", "from the API")
    rows = spark.createDataFrame([(f"row {number}",) for number in range(100)], "value string")
    rows.write.format("penstock").options(**secure.options, topic="orders").mode("append").save()
    read = spark.read.format("penstock").options(**secure.options, subscribe="orders").load()
    values = {bytes(row.value).decode() for row in read.select("value").collect()}
    assert values == {"from the API", *(f"row {number}" for number in range(100))}
    read.explain(True)
    assert PASSWORD not in capfd.readouterr().out

    query = (
        spark.readStream.format("penstock")
        .options(**secure.options, subscribe="orders", startingOffsets="earliest")
        .load()
        .writeStream.format("penstock")
        .options(**secure.options, topic="copies", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    with penstock.connect(secure.broker.at["SECURE"], security=secure.properties) as mq:
        mq.publish("copies", "first")
        query.start().awaitTermination()
        copied = [message.text() for message in mq.subscribe("copies", from_="earliest", idle_timeout_s=5)]
    assert sorted(copied) == sorted([*values, "first"])


def test_a_job_logs_in_with_a_delegation_token(secure: Secure, spark: SparkSession) -> None:
    options = secure.with_token()
    rows = spark.createDataFrame([(f"row {number}",) for number in range(20)], "value string")
    rows.write.format("penstock").options(**options, topic="by-token").mode("append").save()
    read = spark.read.format("penstock").options(**options, subscribe="by-token").load()
    assert {bytes(row.value).decode() for row in read.select("value").collect()} == {
        f"row {number}" for number in range(20)
    }


def test_a_pipeline_connects_over_sasl_ssl(secure: Secure, spark: SparkSession, tmp_path: Path) -> None:
    """From one topic to another: topics are looked up and created by clients of the driver, and copied by Spark."""
    client = tmp_path / "client.properties"
    client.write_text("".join(f"{name}={value}\n" for name, value in secure.properties.items()))
    brokers = f"{{servers: '{secure.broker.at['SECURE']}', client: {client}}}"
    file = tmp_path / "copy.yaml"
    file.write_text(
        f"pipeline: mirror\nbootstrap: {brokers}\nto: {brokers}\ntopics: orders\nprefix: copy.\n"
        f"checkpoint: {tmp_path / 'checkpoint'}\n"
    )
    with penstock.connect(secure.broker.at["SECURE"], security=secure.properties) as mq:
        mq.publish("orders", "hello")
        loaded = load(str(file))
        check_clusters(loaded)
        run_in(spark, loaded, once=True)
        (copied,) = mq.subscribe("copy.orders", from_="earliest", idle_timeout_s=5)
        assert copied.text() == "hello"


def test_settings_are_sent_to_workers_with_the_content_of_files(secure: Secure) -> None:
    found = client_settings_of(Options({**secure.options, "subscribe": "x"}, READ_OPTIONS), client_id="spark")
    data: Any = pickle.dumps(found)
    shutil.rmtree(secure.made.trust.parent)
    copy = pickle.loads(data)
    assert copy.connection.security.tls.current.cert_store_stats()["x509_ca"] == 1
    assert copy.connection.security.login == found.connection.security.login
    assert PASSWORD not in repr(found)


def test_a_wrong_password_is_reported_by_the_driver(secure: Secure, spark: SparkSession) -> None:
    wrong = secure.options | {"kafka.sasl.password": "wrong"}
    with pytest.raises(Exception, match="refused the login of user 'spark'") as refused:
        spark.read.format("penstock").options(**wrong, subscribe="orders").load().count()
    assert "wrong" not in str(refused.value).replace("wrong user", "")
