"""`threadkeep`: threadkeep's command line for people and scripts. It speaks gRPC only, through the Python client."""
