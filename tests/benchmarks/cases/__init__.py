"""Every case, in the order in which a run takes them."""

from __future__ import annotations

from tests.benchmarks.cases.artifacts import (
    ArtifactDownload,
    ArtifactDownloadDirectory,
    ArtifactDownloadMemory,
    ArtifactDownloadParallel,
    ArtifactList,
    ArtifactUpload,
    ArtifactUploadDirectory,
    ArtifactUploadMemory,
    ArtifactUploadParallel,
)
from tests.benchmarks.cases.commits import Commit64, CommitLatency, CommitLongThread
from tests.benchmarks.cases.config import ConfigResolve, ConfigResolveMany
from tests.benchmarks.cases.events import EventsCatchUp, EventsLive, EventsMemory
from tests.benchmarks.cases.history import HistoryResolve, HistoryResume, HistoryWrite
from tests.benchmarks.cases.idle import EventsIdle
from tests.benchmarks.cases.langgraph import GraphAsync1, GraphAsync16, GraphSync1, GraphSync16, ListLarge
from tests.benchmarks.cases.projecting import MessagesPage, ProjectionFollow, ProjectionRebuild, SessionFanOut
from tests.benchmarks.cases.scaling import Scaling1, Scaling2, Scaling4
from tests.benchmarks.cases.threads import ListSessions, ViewLongThread
from tests.benchmarks.cases.watching import WatchColdStart, WatchFanOut, WatchIdle
from tests.benchmarks.cases.work import AcquireDeep, SubmitToDone
from tests.benchmarks.harness import Case

CASES: tuple[type[Case], ...] = (
    Commit64,
    CommitLatency,
    CommitLongThread,
    Scaling1,
    Scaling2,
    Scaling4,
    ViewLongThread,
    ListSessions,
    SubmitToDone,
    AcquireDeep,
    EventsCatchUp,
    EventsMemory,
    EventsLive,
    EventsIdle,
    GraphSync16,
    GraphSync1,
    GraphAsync16,
    GraphAsync1,
    ListLarge,
    ConfigResolve,
    ConfigResolveMany,
    HistoryResolve,
    HistoryWrite,
    HistoryResume,
    WatchFanOut,
    WatchColdStart,
    WatchIdle,
    ArtifactUpload,
    ArtifactDownload,
    ArtifactUploadDirectory,
    ArtifactDownloadDirectory,
    ArtifactUploadMemory,
    ArtifactDownloadMemory,
    ArtifactUploadParallel,
    ArtifactDownloadParallel,
    ArtifactList,
    ProjectionFollow,
    ProjectionRebuild,
    MessagesPage,
    SessionFanOut,
)
