"""LangGraph's three tables: batched writes inside the commit's transaction, reads in one snapshot, lists page by page.

Values stay opaque. Every function is a plain one of a synchronous connection; which operations are legal is decided in
`domain.checkpoints`.
"""

from threadkeep_runtime.checkpoints.index import load_indexes
from threadkeep_runtime.checkpoints.listing import CheckpointQuery, PageKey, page_keys
from threadkeep_runtime.checkpoints.reading import FoundCheckpoint, load_checkpoint, load_checkpoints
from threadkeep_runtime.checkpoints.removing import holds_checkpoints, load_head, load_removal, sessions_of_runs
from threadkeep_runtime.checkpoints.rollback import load_root_before
from threadkeep_runtime.checkpoints.staging import load_staged, stage_chunk, sweep_staged
from threadkeep_runtime.checkpoints.values import ValueName, read_piece
from threadkeep_runtime.checkpoints.writing import apply_changes

__all__ = [
    "CheckpointQuery",
    "FoundCheckpoint",
    "PageKey",
    "ValueName",
    "apply_changes",
    "holds_checkpoints",
    "load_checkpoint",
    "load_checkpoints",
    "load_head",
    "load_indexes",
    "load_removal",
    "load_root_before",
    "load_staged",
    "page_keys",
    "read_piece",
    "sessions_of_runs",
    "stage_chunk",
    "sweep_staged",
]
