"""Detects a media type from a name, else from the first bytes. Its own tables: the same answer on every machine."""

from __future__ import annotations

import codecs

HEAD_BYTES = 512
"""How many bytes of the content `detect` looks at."""

_BY_ENDING = {
    "avif": "image/avif",
    "bmp": "image/bmp",
    "c": "text/x-c",
    "cpp": "text/x-c++",
    "css": "text/css",
    "csv": "text/csv",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "gif": "image/gif",
    "go": "text/x-go",
    "gz": "application/gzip",
    "h": "text/x-c",
    "htm": "text/html",
    "html": "text/html",
    "ics": "text/calendar",
    "ipynb": "application/x-ipynb+json",
    "java": "text/x-java",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "js": "text/javascript",
    "json": "application/json",
    "jsonl": "application/jsonl",
    "log": "text/plain",
    "md": "text/markdown",
    "mjs": "text/javascript",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "ndjson": "application/x-ndjson",
    "ogg": "audio/ogg",
    "parquet": "application/vnd.apache.parquet",
    "pdf": "application/pdf",
    "png": "image/png",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "py": "text/x-python",
    "rs": "text/x-rust",
    "rst": "text/x-rst",
    "sh": "application/x-sh",
    "sql": "application/sql",
    "svg": "image/svg+xml",
    "tar": "application/x-tar",
    "tex": "application/x-tex",
    "toml": "application/toml",
    "ts": "text/x-typescript",
    "tsv": "text/tab-separated-values",
    "txt": "text/plain",
    "wasm": "application/wasm",
    "wav": "audio/wav",
    "webm": "video/webm",
    "webp": "image/webp",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xml": "application/xml",
    "yaml": "application/yaml",
    "yml": "application/yaml",
    "zip": "application/zip",
    "zst": "application/zstd",
}

_BY_HEAD = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"PK\x05\x06", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"\x00asm", "application/wasm"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"OggS", "audio/ogg"),
)


def detect(name: str, head: bytes) -> str | None:
    """The media type, or None if neither tells. `head` is the first HEAD_BYTES of the content, all of it if shorter."""
    _, dot, ending = name.rpartition(".")
    if dot and (found := _BY_ENDING.get(ending.lower())) is not None:
        return found
    for start, media_type in _BY_HEAD:
        if head.startswith(start):
            return media_type
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "text/plain" if head and _is_text(head) else None


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    try:
        # A character may be cut in two where the head ends.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return True
