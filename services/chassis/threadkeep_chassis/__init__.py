"""Plumbing that every threadkeep service stands on: errors, scope, database, receipts, paging, hosting.

It knows no resource. A service imports the module it needs; nothing is re-exported here, so that importing the pure
modules (`errors`, `canonical`, `clock`, `ids`) costs neither grpc nor SQLAlchemy.
"""
