"""Messages as JSON for scripts: contract names, exact numbers, readable payloads, nothing made up."""

from threadkeep.common.v1 import payload_pb2
from threadkeep.runtime.v1 import event_pb2, run_pb2, ticket_pb2
from threadkeep_cli.plain import to_plain


def test_fields_have_the_contracts_names_and_numbers_stay_numbers() -> None:
    run = run_pb2.Run(run_id="r", epoch=2**53 + 1, state=run_pb2.RUN_STATE_ENDED)
    run.create_time.FromJsonString("2026-01-02T03:04:05.000006Z")
    plain = to_plain(run)
    assert plain["epoch"] == 2**53 + 1
    assert plain["state"] == "RUN_STATE_ENDED"
    assert plain["create_time"] == "2026-01-02T03:04:05.000006Z"
    assert "lease_expire_time" not in plain
    assert plain["crash_count"] == 0


def test_payloads_are_shown_as_what_they_hold() -> None:
    def shown(content_type: str, data: bytes) -> dict[str, object]:
        event = event_pb2.Event(payload=payload_pb2.Payload(content_type=content_type, data=data), cursor=b"\xff")
        found: dict[str, object] = to_plain(event)["payload"]
        return found

    assert shown("application/json", b'{"a": [1]}')["json"] == {"a": [1]}
    assert shown("text/plain; charset=utf-8", "ü".encode())["text"] == "ü"
    assert shown("application/octet-stream", b"\x00\xff")["data"] == "AP8="
    # Not JSON though it says so: shown, not a crash.
    assert shown("application/json", b"{")["json"] == "{"


def test_json_in_text_fields_is_parsed_and_unknown_enum_values_survive() -> None:
    ticket = ticket_pb2.Ticket(
        answer=ticket_pb2.TicketAnswer(value_json="null"), answer_schema_json='{"type": "string"}'
    )
    plain = to_plain(ticket)
    assert plain["answer"] == {"value_json": None}
    assert plain["answer_schema_json"] == {"type": "string"}
    newer = run_pb2.Run.FromString(b"\x28\x63")
    assert to_plain(newer)["state"] == 99
