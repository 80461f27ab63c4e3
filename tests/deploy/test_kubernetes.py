"""The Kubernetes manifests: valid by its schemas, and in agreement with each other and with the broker."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from penstock.node import LEAVE_S, SHUTDOWN_S

from .manifests import KUBERNETES, expanded, resource, resources, settings_of, store_of

VERSIONS = ("1.28", "1.33")
POD = {"POD_NAME": "penstock-2", "POD_INDEX": "2", "POD_NAMESPACE": "penstock", "NODE_NAME": "machine-7"}


def pods(name: str) -> dict[str, Any]:
    found: dict[str, Any] = resource("StatefulSet", name)["spec"]["template"]
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pods(name)["spec"]["containers"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_resource_is_valid(version: str) -> None:
    found = resources()
    assert len(found) == 8
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


def test_every_file_is_part_of_the_whole() -> None:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert {path.name for path in KUBERNETES.glob("*.yaml")} == {"kustomization.yaml", *listed}


def test_the_namespace_is_the_one_that_is_made() -> None:
    whole = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    assert resource("Namespace", whole["namespace"])
    assert {image["name"] for image in whole["images"]} == {container("penstock")["image"]}


@pytest.mark.parametrize("name", ["penstock", "etcd"])
def test_selectors_find_the_pods(name: str) -> None:
    labels = pods(name)["metadata"]["labels"]
    assert resource("StatefulSet", name)["spec"]["selector"]["matchLabels"] == labels
    assert resource("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels
    affinity = pods(name)["spec"]["affinity"]["podAntiAffinity"]
    (term,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
    for service in (each for each in resources() if each["kind"] == "Service"):
        is_ours = service["spec"]["selector"] == labels
        assert is_ours == service["metadata"]["name"].startswith(name)
    assert resource("StatefulSet", name)["spec"]["serviceName"] == name
    assert resource("Service", name)["spec"]["clusterIP"] == "None", "pods have names of their own"


def test_the_labels_of_brokers_and_of_etcd_differ() -> None:
    assert pods("penstock")["metadata"]["labels"] != pods("etcd")["metadata"]["labels"]


@pytest.mark.parametrize("name", ["penstock", "penstock-http", "etcd"])
def test_ports_that_services_lead_to_are_there(name: str) -> None:
    named = {port["name"] for port in container("etcd" if name == "etcd" else "penstock")["ports"]}
    for port in resource("Service", name)["spec"]["ports"]:
        assert port["targetPort"] in named


def test_variables_of_arguments_are_given() -> None:
    for name in ("penstock", "etcd"):
        given = {variable["name"] for variable in container(name)["env"]}
        used = {match for argument in container(name)["args"] for match in POD if f"$({match})" in argument}
        assert used == given


def test_a_pod_is_the_broker_of_its_ordinal() -> None:
    settings = settings_of([expanded(argument, POD) for argument in container("penstock")["args"]])
    assert settings.node_id == 2
    assert str(settings.advertise) == "penstock-2.penstock.penstock.svc:9092"
    assert settings.settings["broker.host.id"] == "machine-7"
    ports = {port["name"]: port["containerPort"] for port in container("penstock")["ports"]}
    assert ports == {"kafka": settings.listen.port, "http": settings.http.port}
    assert settings.advertise is not None
    assert resource("Service", "penstock")["spec"]["ports"][0]["port"] == settings.advertise.port
    (mount,) = container("penstock")["volumeMounts"]
    (claim,) = resource("StatefulSet", "penstock")["spec"]["volumeClaimTemplates"]
    assert mount["name"] == claim["metadata"]["name"]
    assert str(settings.data_dir).startswith(f"{mount['mountPath']}/"), "the volume's own root has other things in it"


def test_the_ordinal_is_read_from_the_label_that_statefulsets_set() -> None:
    (found,) = (variable for variable in container("penstock")["env"] if variable["name"] == "POD_INDEX")
    path = found["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['apps.kubernetes.io/pod-index']"


def test_brokers_know_all_servers_of_etcd() -> None:
    settings = settings_of([expanded(argument, POD) for argument in container("penstock")["args"]])
    count = resource("StatefulSet", "etcd")["spec"]["replicas"]
    store = store_of(settings)
    assert (store.kind, count) == ("etcd", 3)
    assert store.servers == tuple(f"etcd-{number}.etcd:2379" for number in range(count))
    (cluster,) = (text for text in container("etcd")["args"] if text.startswith("--initial-cluster="))
    assert cluster == "--initial-cluster=" + ",".join(
        f"etcd-{number}=http://etcd-{number}.etcd:2380" for number in range(count)
    )


def test_topics_survive_what_the_budget_allows() -> None:
    settings = settings_of([expanded(argument, POD) for argument in container("penstock")["args"]]).settings
    spec = resource("StatefulSet", "penstock")["spec"]
    replicas, in_sync = int(settings["default.replication.factor"]), int(settings["min.insync.replicas"])
    assert replicas <= spec["replicas"]
    assert resource("PodDisruptionBudget", "penstock")["spec"]["maxUnavailable"] <= replicas - in_sync


def test_a_broker_has_the_time_that_it_takes_to_leave() -> None:
    assert pods("penstock")["spec"]["terminationGracePeriodSeconds"] >= 2 * (LEAVE_S + SHUTDOWN_S)


def test_probes_ask_for_what_brokers_answer() -> None:
    probes = {name: container("penstock")[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
    assert {probe["port"] for probe in probes.values()} == {"http"}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "readiness": "/readyz",
        "liveness": "/healthz",
    }
