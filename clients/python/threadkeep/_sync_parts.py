"""The parts of the synchronous client. What a call is stands in `_api`; here it is run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Unpack

from threadkeep import _content
from threadkeep._api import (
    artifacts,
    config,
    events,
    info,
    outbox,
    projection,
    retention,
    runs,
    schedules,
    sessions,
    store,
    tasks,
    threads,
    tickets,
    worker,
)
from threadkeep._sync_calls import Part
from threadkeep._sync_calls import feed as _feed
from threadkeep._sync_calls import pages as _pages
from threadkeep._sync_calls import unary as _unary
from threadkeep.artifacts.v1.artifact_pb2 import ArtifactVersion
from threadkeep.errors import WaitTimeout
from threadkeep.runtime.v1 import commit_pb2, event_pb2, store_pb2, task_pb2, worker_service_pb2


class Sessions(Part):
    """Sessions."""

    draft = staticmethod(sessions.draft)
    create = _unary(sessions.create)
    get = _unary(sessions.get)
    list = _pages(sessions.list)
    update = _unary(sessions.update)
    delete = _unary(sessions.delete)
    fork = _unary(sessions.fork)


class Tasks(Part):
    """Tasks."""

    submit = _unary(tasks.submit)
    get = _unary(tasks.get)
    list = _pages(tasks.list)
    cancel, cancel_many = _unary(tasks.cancel), _unary(tasks.cancel_many)
    retry = _unary(tasks.retry)
    put_webhook, delete_webhook = _unary(tasks.put_webhook), _unary(tasks.delete_webhook)
    list_webhooks = _pages(tasks.list_webhooks)

    def wait(self, task_id: str, *, timeout: float = tasks.DEFAULT_WAIT) -> task_pb2.Task:
        """Waits up to `timeout` seconds until the task is final or needs input. Raises TaskNotFound, WaitTimeout."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                return self._run(tasks.wait(task_id, timeout=left))
            except WaitTimeout:
                if left <= tasks.LONGEST_WAIT:
                    raise


class Schedules(Part):
    """Schedules."""

    task = staticmethod(schedules.task)
    create = _unary(schedules.create)
    get = _unary(schedules.get)
    list = _pages(schedules.list)
    update = _unary(schedules.update)
    delete = _unary(schedules.delete)


class Runs(Part):
    """Runs."""

    get = _unary(runs.get)
    list = _pages(runs.list)


class Tickets(Part):
    """Tickets."""

    get = _unary(tickets.get)
    list = _pages(tickets.list)
    resolve = _unary(tickets.resolve)


class Outbox(Part):
    """Messages that commits sent; `message`, `task_on_arrival` and `webhook` write them."""

    message = staticmethod(outbox.message)
    task_on_arrival = staticmethod(outbox.task_on_arrival)
    webhook = staticmethod(outbox.webhook)
    list_deliveries = _pages(outbox.list_deliveries)
    list_dead_letters = _pages(outbox.list_dead_letters)
    requeue = _unary(outbox.requeue)
    purge = _unary(outbox.purge)


class Threads(Part):
    """The thread's write boundary, and the thread as it is or was."""

    commit = _unary(threads.commit)
    view = _pages(threads.view)
    list_commits = _pages(threads.list_commits)
    verify = _pages(threads.verify)
    list_audit = _pages(threads.list_audit)
    declare_state_keys = _unary(threads.declare_state_keys)
    list_state_keys = _pages(threads.list_state_keys)


class Checkpoints(Part):
    """Checkpoints, as LangGraph savers use them. Values are opaque here; `threadkeep.langgraph` knows them."""

    put = _unary(threads.put)
    put_writes = _unary(threads.put_writes)
    get = _unary(threads.get)
    stage_chunk = _unary(threads.stage_chunk)
    delete_thread = _unary(threads.delete_thread)
    delete_for_runs = _unary(threads.delete_for_runs)
    copy_thread = _unary(threads.copy_thread)
    prune_thread = _unary(threads.prune_thread)

    def list(self, **filters: Any) -> Iterator[Any]:
        """CheckpointTuples, newest first; the filters are those of `threadkeep._api.threads.list`."""
        for frame in self._transport.listed(threads.list(**filters), self._context, self._options):
            yield from frame.checkpoints

    def read_value(self, *place: Any) -> bytes:
        """A value that a reply left out; its place is said by `threadkeep._api.threads.read_value`."""
        frames = self._transport.listed(threads.read_value(*place), self._context, self._options)
        return b"".join(frame.data for frame in frames)


class Store(Part):
    """Memory across threads. Embeddings are made by the caller; `threadkeep.langgraph.ThreadkeepStore` makes them."""

    put = _unary(store.put)
    delete = _unary(store.delete)
    get = _unary(store.get)
    batch = _unary(store.batch)

    def search(self, namespace_prefix: Iterable[str] = (), **wanted: Any) -> Iterator[Any]:
        """StoreItems; what can be wanted is said by `threadkeep._api.store.to_search`."""
        yield from self._search(store.to_search(tuple(namespace_prefix), **wanted))

    def list_namespaces(self, **wanted: Any) -> Iterator[tuple[str, ...]]:
        """Namespaces, sorted; what can be wanted is said by `threadkeep._api.store.to_namespace_list`."""
        yield from self._list_namespaces(store.to_namespace_list(**wanted))

    def _search(self, search: store_pb2.ItemSearch) -> Iterator[store_pb2.StoreItem]:
        for frame in self._transport.listed(store.search(search), self._context, self._options):
            yield from frame.items

    def _list_namespaces(self, wanted: store_pb2.NamespaceList) -> Iterator[tuple[str, ...]]:
        for frame in self._transport.listed(store.list_namespaces(wanted), self._context, self._options):
            for namespace in frame.namespaces:
                yield tuple(namespace.labels)


class Events(Part):
    """Events."""

    list = _pages(events.list)
    subscribe = _feed(events.subscribe)


class WorkerCalls(Part):
    """What workers call. `threadkeep.worker` is a whole worker."""

    acquire = _unary(worker.acquire)
    heartbeat = _unary(worker.heartbeat)
    release = _unary(worker.release)

    def publish_live(self, lease: commit_pb2.Lease, observations: Iterable[event_pb2.LiveObservation]) -> int:
        """Shows observations to subscribers; gives how many the server took. Raises LeaseLost."""
        response: worker_service_pb2.PublishLiveResponse = self._transport.upload(
            worker.PUBLISH_LIVE, worker.live_requests(lease, observations), self._context
        )
        return response.accepted_count


class Config(Part):
    """Definitions of agents, tools and providers."""

    put = _unary(config.put)
    update = _unary(config.update)
    hide = _unary(config.hide)
    get = _unary(config.get)
    list = _pages(config.list)
    delete = _unary(config.delete)
    resolve = _unary(config.resolve)
    resolve_many = _unary(config.resolve_many)
    explain = _unary(config.explain)
    resolve_manifest = _unary(config.resolve_manifest)
    list_revisions = _pages(config.list_revisions)
    diff_revisions = _unary(config.diff_revisions)
    rollback = _unary(config.rollback)
    apply_set = _unary(config.apply_set)
    export_set = _pages(config.export_set)
    watch = _feed(config.watch)


class Artifacts(Part):
    """Artifacts."""

    get = _unary(artifacts.get)
    list = _pages(artifacts.list)
    list_versions = _pages(artifacts.list_versions)
    create = _unary(artifacts.create)
    copy = _unary(artifacts.copy)
    update = _unary(artifacts.update)
    delete = _unary(artifacts.delete)
    delete_version = _unary(artifacts.delete_version)
    restore = _unary(artifacts.restore)
    diff = _unary(artifacts.diff)
    usage = _unary(artifacts.usage)
    resume = _unary(artifacts.resume)
    sign_download = _unary(artifacts.sign_download)

    def upload(
        self,
        content: _content.Content,
        name: str,
        *,
        upload_id: str | None = None,
        **fields: Unpack[artifacts.VersionFields],
    ) -> ArtifactVersion:
        """Uploads content (bytes, a path, a binary file, or chunks) as a new version of an artifact, or of a new one.

        A broken upload goes on where it broke, if its content can be read again; with an `upload_id` of your choice
        also in another process. Raises IdTaken, RevisionConflict, PathTaken, LimitExceeded, QuotaExceeded.
        """
        header = artifacts.header(name, upload_id=upload_id, **fields)
        return _content.upload(self._transport, self._context, self._options, header, content)

    def download(self, artifact_id: str, version: int = 0) -> Iterator[bytes]:
        """A version's content in chunks; version 0 is the latest. Goes on where it broke; the digest is verified at the
        end. Raises ArtifactNotFound, CorruptContent."""
        progress = _content.Progress(artifact_id, version)
        return _content.download(self._transport, self._context, self._options, progress)

    def read(self, artifact_id: str, version: int = 0) -> bytes:
        """A version's whole content, verified."""
        return b"".join(self.download(artifact_id, version))

    def download_to(
        self,
        path: str | os.PathLike[str],
        artifact_id: str,
        version: int = 0,
        *,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> ArtifactVersion:
        """Writes a version's content to a file, which appears when the content is complete and verified.

        `on_progress` is told the number of bytes that came just now.
        """
        progress = _content.Progress(artifact_id, version)
        file, finish, discard = _content.replacing(path)
        try:
            for chunk in _content.download(self._transport, self._context, self._options, progress):
                file.write(chunk)
                on_progress(len(chunk))
            finish()
        except BaseException:
            discard()
            raise
        assert progress.version is not None
        return progress.version


class Messages(Part):
    """Messages of sessions, as the projection shows them."""

    list = _pages(projection.list_messages)
    get = _unary(projection.get_message)
    search = _pages(projection.search_messages)


class Summaries(Part):
    """Summaries of sessions, tasks and runs."""

    get_session = _unary(projection.get_session)
    get_task = _unary(projection.get_task)
    get_run = _unary(projection.get_run)
    list_sessions = _pages(projection.list_sessions)
    list_tasks = _pages(projection.list_tasks)
    list_runs = _pages(projection.list_runs)
    list_usage = _pages(projection.list_usage)
    list_agents = _pages(projection.list_agents)
    get_counts = _unary(projection.get_counts)


class Streams(Part):
    """Sessions as one stream."""

    subscribe_session = _feed(events.subscribe_session)


class ProjectionAdmin(Part):
    """The projection itself."""

    get_status = _unary(projection.get_status)
    rebuild_session = _unary(projection.rebuild_session)
    rebuild = _feed(projection.rebuild)
    list_poison_events = _pages(projection.list_poison_events)
    retry_poison_events = _unary(projection.retry_poison_events)
    pause = _unary(projection.pause)
    resume = _unary(projection.resume)


class Info(Part):
    """What the servers are."""

    get = _unary(info.get)


class Retention(Part):
    """How long a scope keeps its past. See `threadkeep._api.retention`."""

    get = _unary(retention.get)
    set = _unary(retention.set)
    purge = _unary(retention.purge)


PARTS: Mapping[str, type[Part]] = {
    "sessions": Sessions,
    "tasks": Tasks,
    "schedules": Schedules,
    "runs": Runs,
    "tickets": Tickets,
    "outbox": Outbox,
    "threads": Threads,
    "checkpoints": Checkpoints,
    "store": Store,
    "events": Events,
    "worker": WorkerCalls,
    "config": Config,
    "artifacts": Artifacts,
    "messages": Messages,
    "summaries": Summaries,
    "streams": Streams,
    "projection_admin": ProjectionAdmin,
    "retention": Retention,
    "info": Info,
}
