"""Where content lies, as settings, and the blob stores that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from threadkeep_artifacts.blobs.bucket import BucketBlobs
from threadkeep_artifacts.blobs.database import DatabaseBlobs
from threadkeep_artifacts.blobs.directory import DirectoryBlobs
from threadkeep_artifacts.blobs.port import BlobStore
from threadkeep_artifacts.blobs.routed import RoutedBlobs
from threadkeep_chassis.database import Database
from threadkeep_chassis.settings import ServerSettings


class ContentSettings(ServerSettings):
    """Where content lies. What a store holds stays readable after a change, as long as its own settings stay."""

    artifacts_content: Literal["database", "directory", "bucket"] = Field(
        "database", description="Where new content goes: database, directory, or bucket (S3 and what speaks like it)."
    )
    artifacts_directory: Path | None = Field(None, description="The directory of content; replicas share it.")
    artifacts_bucket: str | None = Field(
        None,
        description="The bucket of content. Credentials: AWS_ACCESS_KEY_ID and the like, as AWS's tools take them.",
    )
    artifacts_bucket_prefix: str = Field("", description="What every key of the bucket begins with.")
    artifacts_bucket_endpoint: str | None = Field(None, description="The bucket's address, where it is not AWS.")
    artifacts_bucket_region: str | None = Field(None, description="The bucket's region.")
    artifacts_signed_download_seconds: float = Field(
        0.0, ge=0, le=7 * 24 * 3600, description="How long a signed address of content in a bucket is good. 0: none."
    )
    artifacts_bucket_timeout_seconds: float = Field(30.0, gt=0, description="How long one request to the bucket takes.")

    @model_validator(mode="after")
    def _chosen_has_a_place(self) -> ContentSettings:
        places = {"directory": self.artifacts_directory, "bucket": self.artifacts_bucket, "database": ""}
        if places[self.artifacts_content] is None:
            raise ValueError(f"artifacts_content={self.artifacts_content} needs artifacts_{self.artifacts_content}")
        return self


def content_store(settings: ContentSettings, database: Database) -> RoutedBlobs:
    """The blob store that the settings say, and those beside it that hold older content."""
    stores: dict[str, BlobStore] = {"database": DatabaseBlobs(database)}
    if settings.artifacts_directory is not None:
        stores["directory"] = DirectoryBlobs(settings.artifacts_directory)
    if settings.artifacts_bucket is not None:
        stores["bucket"] = BucketBlobs(
            settings.artifacts_bucket,
            prefix=settings.artifacts_bucket_prefix,
            endpoint=settings.artifacts_bucket_endpoint,
            region=settings.artifacts_bucket_region,
            timeout_seconds=settings.artifacts_bucket_timeout_seconds,
        )
    return RoutedBlobs(settings.artifacts_content, stores)
