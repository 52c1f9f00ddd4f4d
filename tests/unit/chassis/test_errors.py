"""Errors and their one mapping to google.rpc.Status (X6)."""

import importlib
import pkgutil
import re
from collections import defaultdict
from pathlib import Path

import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2

from threadkeep.common.v1 import error_reason_pb2
from threadkeep_chassis import errors
from threadkeep_chassis.errors import ThreadkeepError
from threadkeep_chassis.status import to_status

REASONS = [value.name for value in error_reason_pb2.ErrorReason.DESCRIPTOR.values]
PROTO = Path(__file__).parents[3] / "protos/threadkeep/common/v1/error_reason.proto"
PACKAGES = (
    "threadkeep_chassis",
    "threadkeep_runtime",
    "threadkeep_config",
    "threadkeep_artifacts",
    "threadkeep_projection",
)


def documented_codes() -> dict[str, str]:
    """The code that stands before each reason in the contract."""
    found = re.findall(r"// ([A-Z_]+): .*\n(?:  //.*\n)*  ERROR_REASON_([A-Z0-9_]+) = \d+;", PROTO.read_text())
    return {reason: code for code, reason in found}


def classes_by_reason() -> dict[str, set[type[ThreadkeepError]]]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if ".versions." not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    found: dict[str, set[type[ThreadkeepError]]] = defaultdict(set)
    pending = list(ThreadkeepError.__subclasses__())
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if "reason" in vars(cls) and cls.__module__.startswith("threadkeep_"):
            found[cls.reason].add(cls)
    return found


@pytest.mark.rule("X6")
def test_every_reason_of_the_contract_has_one_class_in_a_package_with_its_code() -> None:
    """Two services may give one reason (RUN_NOT_FOUND), each with a class of its own: they don't know each other."""
    documented, classes = documented_codes(), classes_by_reason()
    assert set(documented) == {name.removeprefix("ERROR_REASON_") for name in REASONS if "UNSPECIFIED" not in name}
    assert set(classes) == set(documented)
    for reason, found in classes.items():
        packages = [cls.__module__.partition(".")[0] for cls in found]
        assert len(set(packages)) == len(packages), f"{reason} is given by {found}"
        assert "threadkeep_chassis" not in packages or len(packages) == 1, f"{reason} is given by {found}"
        assert {cls.code for cls in found} == {documented[reason]}, reason


def details(status: status_pb2.Status, kind: type) -> list:
    found = []
    for packed in status.details:
        detail = kind()
        if packed.Is(detail.DESCRIPTOR):
            packed.Unpack(detail)
            found.append(detail)
    return found


@pytest.mark.rule("X6")
def test_a_status_carries_reason_domain_and_details() -> None:
    status = to_status(errors.FieldInvalid("ops[2].id", "must not be empty", ("name", "is required")))
    assert status.code == code_pb2.INVALID_ARGUMENT
    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.domain) == ("FIELD_INVALID", "threadkeep")
    (bad,) = details(status, error_details_pb2.BadRequest)
    assert [(v.field, v.description) for v in bad.field_violations] == [
        ("ops[2].id", "must not be empty"),
        ("name", "is required"),
    ]


@pytest.mark.rule("X6", "X9")
def test_a_limit_names_itself_and_the_way_out() -> None:
    status = to_status(errors.LimitExceeded("max_entity_bytes", 10, 11, "Split it."))
    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert dict(info.metadata) == {
        "limit": "max_entity_bytes", "maximum": "10", "actual": "11", "advice": "Split it."
    }  # fmt: skip
    assert "max_entity_bytes is 10, this is 11. Split it." in status.message


@pytest.mark.rule("X4", "X6")
def test_a_conflict_names_the_current_revision() -> None:
    (info,) = details(to_status(errors.RevisionConflict(7)), error_details_pb2.ErrorInfo)
    assert info.metadata["current_revision"] == "7"


@pytest.mark.rule("X6")
def test_a_retry_says_when_and_a_resource_what() -> None:
    (retry,) = details(to_status(errors.CommitUnknown()), error_details_pb2.RetryInfo)
    assert retry.retry_delay.ToMilliseconds() == 500
    (resource,) = details(to_status(errors.IdTaken("session", "s-1")), error_details_pb2.ResourceInfo)
    assert (resource.resource_type, resource.resource_name) == ("session", "s-1")


@pytest.mark.rule("X6", "X11")
def test_an_unknown_exception_leaks_no_word_of_its_text() -> None:
    status = to_status(ValueError("the password is hunter2"), trace_id="abc")
    assert status.code == code_pb2.INTERNAL
    assert b"hunter2" not in status.SerializeToString()
    (info,) = details(status, error_details_pb2.ErrorInfo)
    assert (info.reason, info.metadata["trace_id"]) == ("INTERNAL", "abc")


@pytest.mark.rule("X9")
def test_details_stay_within_what_metadata_can_carry() -> None:
    many = [("f" * 5000, "r" * 5000)] * 100
    assert to_status(errors.FieldInvalid("x" * 5000, "y" * 5000, *many)).ByteSize() < 64 * 1024


@pytest.mark.rule("X6", "X9")
def test_no_text_makes_an_error_larger_than_clients_take() -> None:
    emoji = "😀" * 5000
    worst = errors.FieldInvalid(emoji, emoji, *[(emoji, emoji)] * 20)
    worst.metadata = {"unresolved": emoji}
    worst.message = emoji
    status = to_status(worst)
    percent_encoded = 3 * len(status.message.encode())
    assert percent_encoded + status.ByteSize() * 4 // 3 < 8192 - 256
    (bad,) = details(status, error_details_pb2.BadRequest)
    assert bad.field_violations[0].field.startswith("😀")
