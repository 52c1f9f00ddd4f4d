"""The contract's field rules, enforced before any work is done (X8)."""

from typing import Any

import pytest

from tests.unit.chassis.probe import probe
from threadkeep.artifacts.v1 import artifact_service_pb2, transfer_pb2
from threadkeep.common.v1 import payload_pb2
from threadkeep.config.v1 import config_service_pb2
from threadkeep.runtime.v1 import session_service_pb2, task_service_pb2, thread_service_pb2, ticket_pb2
from threadkeep_chassis.errors import FieldInvalid
from threadkeep_chassis.rules import ContractIncomplete, ScopeRule, method_rule, service_rules
from threadkeep_chassis.validation import Validator

VALIDATOR = Validator()
INNER = probe.Inner(checkpoint_id="c")


def violations(message: Any) -> list[str]:
    try:
        VALIDATOR.check(message)
    except FieldInvalid as error:
        return [path for path, _ in error.violations]
    return []


def ruled(**fields: Any) -> list[str]:
    return violations(probe.Ruled(**{"name": "n", **fields}))


@pytest.mark.rule("X8")
@pytest.mark.parametrize("bad", ["a\x00b", "\n", "a\x1f", "\x7f", "\x85", "a" * 257])
def test_ids_and_names_reject_control_characters_and_excess(bad: str) -> None:
    assert ruled(id=bad) == ["id"]
    assert ruled(maybe_id=bad) == ["maybe_id"]
    assert ruled(name=bad) == ["name"]
    assert ruled(choice_id=bad) == ["choice_id"]
    assert ruled(ids=["ok", bad]) == ["ids[1]"]


@pytest.mark.rule("X8")
@pytest.mark.parametrize("good", ["a", "é", "株式会社", "😀" * 256, "a b/c:d", "\u2028", "..", "%00"])
def test_unicode_ids_and_names_work(good: str) -> None:
    assert ruled(id=good, maybe_id=good, name=good, ids=[good], choice_id=good) == []


@pytest.mark.rule("X8")
@pytest.mark.case("B67")
def test_an_id_that_is_present_and_empty_is_refused_and_an_absent_one_is_not() -> None:
    assert ruled(maybe_id="") == ["maybe_id"]
    assert ruled(choice_id="") == ["choice_id"]
    assert ruled(ids=[""]) == ["ids[0]"]
    assert ruled() == []


@pytest.mark.rule("X8")
def test_nul_is_refused_in_every_text_also_without_a_rule_and_kept_in_bytes() -> None:
    assert violations(probe.ListRequest(filter="a\x00b")) == ["filter"]
    assert violations(probe.ListRequest(filter="a\x01\n\tb")) == []
    assert ruled(text="a\x00") == ["text"]
    assert ruled(json='"\x00"') == ["json"]
    assert ruled(blob=b"a\x00") == []
    payload = payload_pb2.Payload(content_type="text/plain", data=b"\x00", attributes={"k": "\x00"})
    assert ruled(payload=payload) == ["payload.attributes[k]"]
    assert ruled(payload=payload_pb2.Payload(content_type="x", attributes={"\x00": "v"})) == ["payload.attributes[?]"]


@pytest.mark.rule("X8")
def test_a_json_field_takes_json_only() -> None:
    assert ruled(json='{"a":9007199254740993}', json_bytes=b"[]") == []
    for bad in ("{", "NaN", '{"a":1,"a":2}', "1e999"):
        assert ruled(json=bad) == ["json"]
        assert ruled(json_bytes=bad.encode()) == ["json_bytes"]
    assert ruled(json_bytes=b'"' + b"x" * 20 + b'"') == ["json_bytes"]


@pytest.mark.rule("X8")
def test_a_payload_that_says_json_is_json_and_any_other_is_opaque() -> None:
    assert ruled(payload=payload_pb2.Payload(content_type="application/json", data=b"{")) == ["payload.data"]
    assert ruled(payload=payload_pb2.Payload(content_type="application/json; charset=utf-8", data=b"NaN")) == [
        "payload.data"
    ]
    for spelt in ("Application/JSON", " application/JSON ;charset=utf-8"):
        assert ruled(payload=payload_pb2.Payload(content_type=spelt, data=b"{")) == ["payload.data"]
    assert ruled(payload=payload_pb2.Payload(content_type="application/octet-stream", data=b"\x00{")) == []
    assert ruled(payload=payload_pb2.Payload(data=b"x")) == ["payload.content_type"]


@pytest.mark.rule("X4", "X8")
@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (session_service_pb2.UpdateSessionRequest(expected_revision=-1), "expected_revision"),
        (
            thread_service_pb2.CommitRequest(commit={"session_id": "s", "expected_thread_version": -1}),
            "commit.expected_thread_version",
        ),
        (config_service_pb2.DeleteEntityRequest(expected_revision=-1), "expected_revision"),
        (artifact_service_pb2.DeleteArtifactRequest(artifact_id="a", expected_version=-1), "expected_version"),
        (
            transfer_pb2.UploadVersionRequest(header={"expected_version": -1}),
            "header.expected_version",
        ),
    ],
)
def test_what_a_write_expects_is_never_negative(request_: Any, field: str) -> None:
    assert field in violations(request_)
    *parts, name = field.split(".")
    inner = request_
    for part in parts:
        inner = getattr(inner, part)
    setattr(inner, name, 0)
    assert field not in violations(request_)


@pytest.mark.rule("X8")
def test_a_lone_surrogate_is_refused_in_plain_words() -> None:
    with pytest.raises(FieldInvalid) as refusal:
        VALIDATOR.check(probe.Ruled(name="n", json='"\\ud800"'))
    assert list(refusal.value.violations) == [("json", "must be a JSON document: it holds a lone surrogate")]


@pytest.mark.rule("X8")
@pytest.mark.parametrize(
    ("seconds", "nanos", "is_good"),
    [
        (0, 0, True),
        (-1, -999_999_999, True),
        (0, -5, True),
        (315_576_000_000, 999_999_999, True),
        (1, 1_000_000_000, False),
        (0, -1_000_000_000, False),
        (1, -1, False),
        (-1, 1, False),
        (315_576_000_001, 0, False),
        (-315_576_000_001, 0, False),
    ],
)
def test_a_duration_is_normalized(seconds: int, nanos: int, is_good: bool) -> None:
    request = task_service_pb2.CancelTaskRequest(request_id="r", task_id="t")
    request.grace_period.seconds, request.grace_period.nanos = seconds, nanos
    assert violations(request) == ([] if is_good else ["grace_period"])


@pytest.mark.rule("X8")
@pytest.mark.parametrize(
    ("seconds", "nanos", "is_good"),
    [
        (-62_135_596_800, 0, True),
        (253_402_300_799, 999_999_999, True),
        (0, 1_000_000_000, False),
        (0, -1, False),
        (-62_135_596_801, 0, False),
        (253_402_300_800, 0, False),
    ],
)
def test_a_timestamp_is_normalized(seconds: int, nanos: int, is_good: bool) -> None:
    ticket = ticket_pb2.TicketDraft()
    ticket.deadline.seconds, ticket.deadline.nanos = seconds, nanos
    assert ("deadline" in violations(ticket)) != is_good


@pytest.mark.rule("X8")
def test_a_digest_has_64_lower_case_hexadecimal_digits() -> None:
    assert ruled(digest="0123456789abcdef" * 4) == []
    for bad in ("a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n"):
        assert ruled(digest=bad) == ["digest"]


@pytest.mark.rule("X9")
def test_sizes_are_bounded_in_characters_bytes_and_elements() -> None:
    assert ruled(text="ééééé", blob=b"12345", ids=["a", "b", "c"], labels={"a": "b", "c": "d"}) == []
    assert ruled(text="123456") == ["text"]
    assert ruled(blob=b"123456") == ["blob"]
    assert ruled(ids=["a", "b", "c", "d"]) == ["ids"]
    assert ruled(labels={"a": "1", "b": "2", "c": "3"}) == ["labels"]


@pytest.mark.rule("X8")
def test_map_keys_and_values_follow_the_rule() -> None:
    assert ruled(labels={"a": "b\x00"}) == ["labels[a]"]
    assert ruled(labels={"a": ""}) == ["labels[a]"]
    assert ruled(labels={"a\x00": "b"}) == ["labels[a?]"]
    assert ruled(labels={"": "b"}) == ["labels[]"]


@pytest.mark.rule("X8")
def test_violations_are_named_by_their_path() -> None:
    empty = probe.Inner()
    assert ruled(inner=empty) == ["inner.checkpoint_id"]
    assert ruled(inners=[INNER, INNER, empty]) == ["inners[2].checkpoint_id"]
    assert ruled(by_name={"k": empty}) == ["by_name[k].checkpoint_id"]
    assert ruled(choice_inner=empty) == ["choice_inner.checkpoint_id"]
    deep = probe.Inner(checkpoint_id="a", deeper=probe.Inner(checkpoint_id="b", deeper=empty))
    assert ruled(inner=deep) == ["inner.deeper.deeper.checkpoint_id"]


@pytest.mark.rule("X8")
def test_required_means_present_and_not_empty() -> None:
    assert violations(probe.Required()) == ["inner", "names", "colour", "number", "maybe_number", "blob", "labels"]
    full = probe.Required(
        inner=INNER, names=["a"], colour=1, number=1, maybe_number=0, blob=b"x", labels={"a": "b"}
    )  # fmt: skip
    assert violations(full) == []


@pytest.mark.rule("X9")
def test_the_number_of_violations_is_bounded() -> None:
    assert len(ruled(inners=[probe.Inner()] * 500)) == 16


@pytest.mark.rule("X11")
def test_a_violation_never_quotes_the_value() -> None:
    with pytest.raises(FieldInvalid) as caught:
        VALIDATOR.check(probe.Ruled(name="hunter2\x00", json='{"hunter2"', digest="hunter2", text="hunter2"))
    assert len(caught.value.violations) == 4
    assert "hunter2" not in str(caught.value.violations)


@pytest.mark.rule("X3")
def test_a_mutation_must_name_its_request_at_the_top_or_in_the_first_message_of_a_stream() -> None:
    rule = method_rule("/threadkeep.probe.v1.ProbeService/Change")
    assert rule is not None
    with pytest.raises(FieldInvalid) as caught:
        VALIDATOR.check_request(rule, probe.ChangeRequest())
    assert caught.value.field == "request_id"
    stream = method_rule("/threadkeep.probe.v1.ProbeService/Upload")
    assert stream is not None
    with pytest.raises(FieldInvalid) as caught:
        VALIDATOR.check_request(stream, probe.UploadRequest(chunk=b"x"))
    assert caught.value.field == "header"
    with pytest.raises(FieldInvalid) as caught:
        VALIDATOR.check_request(stream, probe.UploadRequest(header={}))
    assert caught.value.field == "header.request_id"
    VALIDATOR.check_request(stream, probe.UploadRequest(chunk=b"x"), first=False)


@pytest.mark.rule("X3", "X13")
def test_a_method_without_a_rule_or_a_mutation_without_request_id_stops_the_server() -> None:
    assert {rule.scope for rule in service_rules("threadkeep.probe.v1.ProbeService").values()} == set(ScopeRule)
    for name in ("threadkeep.probe.v1.UnruledService", "threadkeep.probe.v1.UnmarkedMutationService"):
        with pytest.raises(ContractIncomplete):
            service_rules(name)
    assert method_rule("/grpc.health.v1.Health/Check") is None
