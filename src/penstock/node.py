"""The composition root: creates and connects all parts of a broker process, starts and stops them in order."""

import asyncio
import contextlib
import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.configs import Configs
from penstock.broker.coordinators import Coordinators
from penstock.broker.delays.assembly import add_delays
from penstock.broker.fetch.sessions import FetchSessions
from penstock.broker.group_effects import GroupEffects
from penstock.broker.peers import Peers
from penstock.broker.queues.assembly import add_queues
from penstock.broker.registry import load_handlers
from penstock.broker.schemas.assembly import add_schemas
from penstock.broker.transactions.producer_ids import ProducerIds
from penstock.cluster.controller import ControllerSettings
from penstock.cluster.controller_task import ControllerFailed, ControllerTask
from penstock.cluster.identity import FolderIdentity, lock_folder
from penstock.cluster.image import ClusterImage
from penstock.cluster.listeners import Listeners
from penstock.cluster.membership import Membership, retry_store
from penstock.cluster.metadata import ImageFailed, Metadata
from penstock.cluster.registration import Identity
from penstock.cluster.settings import ADVERTISED_HTTP
from penstock.foundation.address import Address as Address
from penstock.foundation.clock import Clock, SystemClock
from penstock.foundation.errors import PenstockError
from penstock.foundation.host import boot_id, disk_space
from penstock.foundation.loop_monitor import LoopMonitor
from penstock.log.disk import OsDisk
from penstock.log.folder import LogFolder
from penstock.log.last_run import LastRun
from penstock.log.settings import Flush
from penstock.network.advertised_address import advertised_listeners, identity_settings
from penstock.network.audit_metrics import AuditMetrics
from penstock.network.broker_metrics import collectors_of
from penstock.network.cluster_metrics import ClusterMetrics
from penstock.network.http_endpoints import HttpEndpoints, MonitoringRules
from penstock.network.http_listener import HttpListener
from penstock.network.kafka_listener import KafkaListener
from penstock.network.loop_metrics import LoopMetrics
from penstock.network.metrics import Metrics
from penstock.network.servers import Servers
from penstock.node_settings import NodeSettings as NodeSettings
from penstock.registry.access import Authenticator
from penstock.registry.request_handler import serve_registry
from penstock.replication.disk_threads import DiskThreads
from penstock.replication.fetchers import FetchSettings, ReplicaFetchers
from penstock.replication.flusher import Flusher
from penstock.replication.isr_maintenance import IsrMaintenance
from penstock.replication.maintenance import Intervals, Maintenance
from penstock.replication.partition_waits import close_logs, open_logs, wait_until_settled, wait_until_topic_settled
from penstock.replication.partitions import Partitions
from penstock.replication.replica_logs import paths_of
from penstock.replication.settings import FOLLOWER_RATE, LEADER_RATE
from penstock.replication.throttle import Throttle
from penstock.sqs.setup import open_request_handler, reread_credentials

logger = logging.getLogger(__name__)

THREADS = 4
IDLE_SWEEP_S = 5.0
SHUTDOWN_S = 5.0
LEAVE_S = 10.0
"""Seconds that a stopping broker waits for other brokers to take over its partitions."""


class Node:
    """One broker process: everything it runs, started in order and stopped in reverse."""

    def __init__(
        self, settings: NodeSettings, on_failure: Callable[[PenstockError], None] = lambda error: None
    ) -> None:
        """`on_failure` is called with a fatal error; the node should then be stopped."""
        self._settings = settings
        self._on_failure = on_failure
        self._lock_fd = -1
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="penstock")
        self._disk_threads = DiskThreads()
        self._tasks: list[asyncio.Task[None]] = []
        self._endpoints = HttpEndpoints(is_ready=lambda: self.ready, metrics=self._metrics_text)
        self._http_listener = HttpListener(self._endpoints.answer, answer_surplus=self._endpoints.answer_surplus)
        self.ready = False
        self.http = settings.http

    @property
    def listeners(self) -> Listeners:
        """The Kafka listeners, with the ports that they are bound to."""
        return self._servers.listeners

    @property
    def listen(self) -> Address:
        """The listen address of the first Kafka listener."""
        return self.listeners.all[0].bind

    async def start(self) -> None:
        """Locks the data folder, opens store and logs, joins the cluster and listens; an error undoes all this."""
        async with contextlib.AsyncExitStack() as undo:
            await self._start(undo)
            undo.pop_all()

    async def _start(self, undo: contextlib.AsyncExitStack) -> None:
        settings = self._settings
        self._lock_fd = lock_folder(settings.data_dir)
        undo.callback(os.close, self._lock_fd)
        on_disk, this_boot = self._disk_threads.call, boot_id()
        self._disk = await on_disk(lambda: OsDisk(settings.data_dir, self._disk_threads.trash))
        folder = await on_disk(lambda: FolderIdentity.of(self._disk, settings.node_id))
        self._last_run = await on_disk(lambda: LastRun(self._disk, this_boot))
        load_handlers()
        self._servers = Servers(
            settings.kafka,
            settings.named,
            lambda: self._metadata,
            lambda kind: self._metrics.refused(kind),
            settings.data_dir / "audit",
        )
        clock = SystemClock()
        self._store = await retry_store(settings.open_store)
        undo.push_async_callback(self._store.close)
        self._metadata = metadata = Metadata(self._store)
        metadata.on_failed = self._on_image_failed
        configs = Configs(static=settings.settings, node_id=settings.node_id, image=lambda: metadata.image)
        self._create_log_services(clock, configs, this_boot)
        loop = asyncio.get_running_loop()
        self._loop_monitor = LoopMonitor(loop, interval_s=configs["event.loop.monitor.interval.ms"] / 1000)
        self._loop_monitor.start()
        undo.callback(self._loop_monitor.stop)
        self._metrics.collectors += LoopMetrics(self._loop_monitor), AuditMetrics(self._servers)
        broker = self._create_broker(configs, clock, loop)
        await metadata.start()
        await self._servers.prepare(metadata)
        self._listener = KafkaListener(broker, self._metrics)
        self._http_listener.connections_max = configs["http.max.connections"]
        self._http_listener.refused = self._metrics.refused
        undo.callback(self._servers.close)
        # Before the logs are opened: a port in use is reported soon.
        self.http = await self._servers.bind(self._listener, self._http_listener, settings.http)
        self._connect_http(broker, configs, clock)
        logs = await on_disk(lambda: LogFolder(self._disk))
        lost, failed = await on_disk(logs.find_lost), await on_disk(logs.find_failed)
        self._create_membership(folder, configs, clock, lost, failed)
        await self._join()
        self._dependents = (  # in order of dependency; all depend on the partitions
            self._fetchers.apply,
            self._coordinators.apply,
            self._queues.apply,
            self._delays.apply,
            self._schemas.runtimes.apply,
            self._peers.apply,
            self._listener.apply,
        )
        metadata.listeners += (self._partitions.apply, *self._dependents)
        self._partitions.on_progress = self._apply_dependents
        self._apply(metadata.image)
        await wait_until_settled(self._partitions)
        self._apply_dependents()
        metadata.wait_settled = partial(wait_until_topic_settled, self._partitions)
        await self._servers.start_serving()
        maintenance = (self._maintenance.run(), self._sweep(), self._isr.run(), self._queues.reclaimer.run())
        self._tasks = [loop.create_task(each) for each in (*maintenance, self._views.run(), self._controlling.run())]
        self._tasks[-1].add_done_callback(self._on_controller_ended)
        self.ready = True

    def _connect_http(self, broker: Broker, configs: Configs, clock: Clock) -> None:
        """Creates the request handlers of queues and of the schema registry, to which HTTP requests are passed."""
        credentials, stored = self._settings.credentials, self._servers.access_keys
        self._sqs = open_request_handler(self._queues, clock, broker, self.http, credentials, configs, stored)
        self._endpoints.queues, self._endpoints.slices = self._sqs.answer, broker.slices
        self._endpoints.rules = MonitoringRules.read(configs)
        authenticator, proxies = Authenticator(lambda: self._sqs.credentials), self._endpoints.rules.proxies
        self._endpoints.registry = serve_registry(broker, self._schemas, authenticator, proxies).answer
        self._metrics.collectors += self._sqs.request_counts, authenticator

    def _create_broker(self, configs: Configs, clock: Clock, loop: asyncio.AbstractEventLoop) -> Broker:
        """Creates the coordinators and the Broker object that all request handlers share."""
        settings, metadata, partitions = self._settings, self._metadata, self._partitions

        def timer(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
            return loop.call_later(seconds, action).cancel

        self._peers = Peers(
            settings.node_id,
            lambda: metadata.image,
            listener=self.listeners.inter_broker,
            security=self._servers.inter_broker,
        )
        self._coordinators = coordinators = Coordinators(
            node_id=settings.node_id,
            partitions=partitions,
            configs=configs,
            clock=clock,
            timer=timer,
            threads=self._threads,
            image=lambda: metadata.image,
            ask=self._peers.ask,
        )
        broker = Broker(
            node_id=settings.node_id,
            metadata=metadata,
            partitions=partitions,
            configs=configs,
            sessions=FetchSessions(
                configs["max.incremental.fetch.session.cache.slots"], first_id=1 + secrets.randbelow(2**31 - 1)
            ),
            producer_ids=ProducerIds(metadata),
            clock=clock,
            timer=timer,
            log_dir=str(settings.data_dir.resolve()),
            disk_space=lambda: disk_space(settings.data_dir),
            threads=self._threads,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            ask=self._peers.ask,
            throttle=self._throttle,
            authorizer=self._servers.authorizer,
            audit=self._servers.audit,
            tokens=self._servers.tokens,
            access_keys=self._servers.access_keys,
        )
        self._queues, self._delays = add_queues(broker), add_delays(broker, settings.data_dir)
        self._schemas = add_schemas(broker)
        self._views = broker.views
        self._metrics.collectors.extend(collectors_of(broker, self._queues, self._delays))
        coordinators.perform_for_groups = GroupEffects(broker).perform
        return broker

    def _create_log_services(self, clock: Clock, configs: Configs, this_boot: str) -> None:
        """Creates the partitions, replica fetchers, log maintenance, ISR maintenance, and their metrics."""
        settings = self._settings
        self._flusher = Flusher()
        self._partitions = Partitions(
            node_id=settings.node_id,
            disk=self._disk,
            clock=clock,
            boot_id=this_boot,
            settings_of=configs.log_settings,
            lag_max_ms=lambda: configs["replica.lag.time.max.ms"],
            run=self._disk_threads.run,
            soon=asyncio.get_running_loop().call_soon,
        )
        self._partitions.on_append = self._flusher.flush_soon
        self._throttle = Throttle(lambda: int(configs[LEADER_RATE]))
        self._fetchers = ReplicaFetchers(
            node_id=settings.node_id,
            partitions=self._partitions,
            clock=clock,
            settings=lambda: FetchSettings(
                wait_ms=configs["replica.fetch.wait.max.ms"],
                partition_bytes=configs["replica.fetch.max.bytes"],
                response_bytes=configs["replica.fetch.response.max.bytes"],
                timeout_ms=configs["replica.socket.timeout.ms"],
            ),
            throttle=Throttle(lambda: int(configs[FOLLOWER_RATE])),
            listener=self.listeners.inter_broker,
            security=self._servers.inter_broker,
        )
        self._partitions.on_durable = self._fetchers.wake
        self._isr = IsrMaintenance(
            partitions=self._partitions, metadata=self._metadata, store=self._store, clock=clock
        )
        self._maintenance = Maintenance(
            partitions=self._partitions,
            metadata=self._metadata,
            flusher=self._flusher,
            clock=clock,
            disk_threads=self._disk_threads,
            intervals=lambda: Intervals.of(configs.__getitem__),
        )
        cluster = ClusterMetrics(
            node_id=settings.node_id,
            image=lambda: self._metadata.image,
            partitions=self._partitions,
            isr_maintenance=self._isr,
            sent=self._throttle,
            fetched=self._fetchers.throttle,
        )
        self._metrics = Metrics(self._partitions, cluster)

    def _create_membership(
        self, folder: FolderIdentity, configs: Configs, clock: Clock, lost: frozenset[str], failed: frozenset[str]
    ) -> None:
        """Creates the membership, which registers this broker, and the controller task. `lost`: paths of
        missing logs. `failed`: paths of logs with a failed fsync, which may lack unsynced records."""
        settings, metadata, on_disk = self._settings, self._metadata, self._disk_threads.call
        listeners = advertised_listeners(self.listeners, self._servers.authenticates)
        own_settings = identity_settings(
            settings.node_id, listeners, self.http, settings.data_dir, http_has_tls=self._servers.http_has_tls
        )
        for name, text in own_settings.items():
            configs.set_if_unset(name, text)
        identity = Identity(
            node_id=settings.node_id,
            host=listeners.peer_address.host,
            port=listeners.peer_address.port,
            endpoints=listeners.endpoints,
            folder=folder.folder,
            cluster_id=folder.cluster_id,
            http=configs[ADVERTISED_HTTP],
            rack=configs["broker.rack"] or None,
            host_id=configs["broker.host.id"] or socket.gethostname(),
        )
        self._membership = Membership(
            store=self._store,
            metadata=metadata,
            identity=identity,
            is_lost=lambda topic, number: bool(lost) and any(path in lost for path in paths_of(topic, number)),
            may_lack=lambda topic, number: (
                (self._last_run.lost_power or any(path in failed for path in paths_of(topic, number)))
                and configs.log_settings(topic).flush is Flush.OS
            ),
            note_cluster=lambda cluster_id: on_disk(lambda: folder.save(self._disk, cluster_id)),
            on_registered=self._on_registered,
            on_refused=self._on_refused,
        )
        self._controlling = ControllerTask(
            node_id=settings.node_id,
            store=self._store,
            metadata=metadata,
            clock=clock,
            is_unclean=configs.is_unclean,
            settings=lambda: ControllerSettings(
                rebalances_leaders=configs["auto.leader.rebalance.enable"],
                rebalances_after_ms=1000 * configs["leader.imbalance.check.interval.seconds"],
            ),
        )
        metadata.spawn(self._servers.tokens.remove_expired(self._controlling))

    async def _join(self) -> None:
        """Registers this broker. A registered broker may be elected leader, so the logs are opened first."""
        await self._membership.prepare()
        await self._disk_threads.call(self._last_run.mark_loss_reported)
        await open_logs(self._partitions, self._metadata.image)
        await self._membership.join()
        await self._controlling.run_pending()

    def _on_registered(self, broker_epoch: int) -> None:
        self._partitions.register(broker_epoch)
        if self.ready:
            self._apply(self._metadata.image)

    def _apply(self, image: ClusterImage) -> None:
        """Applies a metadata image to the partitions, and to all services that depend on the partitions."""
        self._partitions.apply(image)
        self._apply_dependents()

    def _apply_dependents(self) -> None:
        """Applies the current metadata image to all services that depend on the partitions."""
        for apply in self._dependents:
            apply(self._metadata.image)

    def _on_refused(self, error: PenstockError) -> None:
        logger.error("broker_refused reason=%r", str(error))
        self._on_failure(error)

    def _on_controller_ended(self, task: asyncio.Task[None]) -> None:
        """Stops the node if the controller task failed, so that another broker becomes controller."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("controller_failed", exc_info=error)
            self._on_failure(ControllerFailed(f"the controller failed: {error!r}; another broker takes over"))

    def _on_image_failed(self, error: Exception) -> None:
        """Stops the node: a broker that cannot apply metadata must not keep its leaderships."""
        self._on_failure(ImageFailed(f"the broker cannot follow the cluster: {error!r}; it stops"))

    async def _sweep(self) -> None:
        """Closes idle connections and reads changed certificates periodically."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(IDLE_SWEEP_S)
            self._listener.close_idle()
            await loop.run_in_executor(self._threads, self._servers.reload_certificates)

    def reread_credentials(self) -> None:
        """Reloads the credentials file."""
        if self._settings.credentials is not None:
            reread_credentials(self._sqs, self._settings.credentials)

    def _metrics_text(self) -> Iterator[bytes]:
        self._listener.report()
        return self._metrics.text()

    async def stop(self) -> None:
        """Moves leadership away, drains requests, syncs and closes the logs, and leaves the cluster."""
        await self._membership.leave(LEAVE_S)
        self.ready = False
        self._servers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fetchers.close()
        await self._isr.close()
        await self._listener.drain(SHUTDOWN_S)
        self._queues.receivers.finish_all()
        await self._http_listener.drain(SHUTDOWN_S)
        self._coordinators.close()
        self._delays.close()
        await self._schemas.close()
        await self._queues.close()
        await self._peers.close()
        await self._maintenance.close()
        await self._disk_threads.call(self._servers.close_audit)
        await self._disk_threads.idle()
        if await close_logs(self._partitions):
            await self._disk_threads.call(self._last_run.end)
        await self._membership.close()
        await self._metadata.close()
        await self._store.close()
        self._disk_threads.shutdown()
        self._threads.shutdown()
        self._loop_monitor.stop()
        os.close(self._lock_fd)
