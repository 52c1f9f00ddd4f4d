"""Every case, in the order in which a run takes them."""

from __future__ import annotations

from tests.benchmarks.cases.artifacts import (
    ArtifactDownload,
    ArtifactDownloadDirectory,
    ArtifactList,
    ArtifactUpload,
    ArtifactUploadDirectory,
)
from tests.benchmarks.cases.commits import Commit64, CommitLatency, CommitLongThread
from tests.benchmarks.cases.config import ConfigResolve, ConfigResolveMany
from tests.benchmarks.cases.events import EventsCatchUp, EventsLive, EventsMemory
from tests.benchmarks.cases.idle import EventsIdle
from tests.benchmarks.cases.langgraph import GraphAsync1, GraphAsync16, GraphSync1, GraphSync16, ListLarge
from tests.benchmarks.cases.threads import ListSessions, ViewLongThread
from tests.benchmarks.cases.work import AcquireDeep, SubmitToDone
from tests.benchmarks.harness import Case

CASES: tuple[type[Case], ...] = (
    Commit64,
    CommitLatency,
    CommitLongThread,
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
    ArtifactUpload,
    ArtifactDownload,
    ArtifactUploadDirectory,
    ArtifactDownloadDirectory,
    ArtifactList,
)
