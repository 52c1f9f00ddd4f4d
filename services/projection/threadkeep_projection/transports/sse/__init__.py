"""Sessions as Server-Sent Events over HTTP: `GET /v1/sessions/{session_id}/events`, for browsers and curl (P6)."""
