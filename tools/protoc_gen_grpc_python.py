"""gRPC's Python generator as a protoc plugin: grpcio-tools has it inside its protoc only, where buf can't call it.

Reads a CodeGeneratorRequest from stdin and writes a CodeGeneratorResponse to stdout. Files without services give none.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler import plugin_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorSet


def main() -> int:
    """Called by buf."""
    request = plugin_pb2.CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = plugin_pb2.CodeGeneratorResponse(
        supported_features=plugin_pb2.CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL
    )
    wanted = set(request.file_to_generate)
    files = [file.name for file in request.proto_file if file.name in wanted and file.service]
    if files:
        with tempfile.TemporaryDirectory() as folder:
            descriptors = Path(folder) / "descriptors.binpb"
            descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
            out = Path(folder) / "out"
            out.mkdir()
            options = [f"--descriptor_set_in={descriptors}", f"--grpc_python_out={out}"]
            subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *files], check=True)
            for path in sorted(out.rglob("*.py")):
                response.file.add(name=path.relative_to(out).as_posix(), content=path.read_text())
    sys.stdout.buffer.write(response.SerializeToString())
    return 0


if __name__ == "__main__":
    sys.exit(main())
