"""Servicers: parse, call, render."""
