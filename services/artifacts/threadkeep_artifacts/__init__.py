"""The artifacts service: the authority for produced content, in append-only versions (A1 to A3, A5).

`server.build` wires it; the rooms are drawn in services/README.md.
"""
