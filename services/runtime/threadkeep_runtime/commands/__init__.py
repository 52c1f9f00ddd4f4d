"""Use cases: find the thread that an id belongs to, ask peers, and hand the command to the pipeline.

A receipt is looked for before anything else, so that a replay gives the first response whatever has happened since
(X3). The pipeline looks again, inside the transaction.
"""

from threadkeep_runtime.commands.base import AnswerCheck, Origin, StateCheck
from threadkeep_runtime.commands.checkpoints import CheckpointUseCases
from threadkeep_runtime.commands.outbox import OutboxUseCases
from threadkeep_runtime.commands.queue_places import QueuePlaces
from threadkeep_runtime.commands.sessions import SessionUseCases
from threadkeep_runtime.commands.tasks import TaskUseCases
from threadkeep_runtime.commands.threads import ThreadUseCases

__all__ = ["AnswerCheck", "Commands", "Origin", "QueuePlaces", "StateCheck"]


class Commands(SessionUseCases, TaskUseCases, ThreadUseCases, CheckpointUseCases, OutboxUseCases):
    """The use cases of one server."""
