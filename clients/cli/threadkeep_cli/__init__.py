"""The command line for people; it speaks gRPC only."""
