"""Converters: from plain Python values to calls, one function per RPC, shared by both clients."""
