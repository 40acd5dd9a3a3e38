import ast
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from types import ModuleType

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from grpc_reflection.v1alpha import reflection
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from anabranch_wire import oip, ranking
from anabranch_wire.descriptors import POOL, names_of
from anabranch_wire.services import INFERENCE, RANKING, Service

CLIENTS = Path(__file__).parents[2]


def run_python(code: str) -> str:
    """Runs code in a fresh interpreter, where nothing is imported yet."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", [oip, ranking])
def test_every_declared_name_exists_at_run_time(module: ModuleType) -> None:
    short = module.__name__.rpartition(".")[2]
    stub = ast.parse(resources.files("anabranch_wire").joinpath(f"{short}.pyi").read_text())

    classes = {node.name for node in stub.body if isinstance(node, ast.ClassDef)}
    others = {ast.unparse(node.target) for node in stub.body if isinstance(node, ast.AnnAssign)}
    declared = classes | others

    assert len(declared) > 5
    assert declared <= vars(module).keys()


def test_messages_survive_the_wire() -> None:
    request = oip.ModelInferRequest(
        model_name="ctr",
        parameters={"timeout": oip.InferParameter(int64_param=5)},
        inputs=[
            oip.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 2]),
        ],
        raw_input_contents=[b"\0" * 8],
    )

    read = oip.ModelInferRequest.FromString(request.SerializeToString())

    assert read == request
    assert read.inputs[0].shape == [1, 2]
    assert oip.DataType.Name(oip.TYPE_FP32) == "TYPE_FP32"
    with pytest.raises(DecodeError):
        oip.ModelInferRequest.FromString(b"\x2a\xff")


def test_services_list_their_methods_with_the_classes_of_the_message_modules() -> None:
    infer = INFERENCE.methods["ModelInfer"]

    assert infer.path == "/inference.GRPCInferenceService/ModelInfer"
    assert infer.request_class is oip.ModelInferRequest
    assert infer.response_class is oip.ModelInferResponse
    assert [m.name for m in INFERENCE.methods.values() if m.streams] == ["ModelStreamInfer"]
    assert RANKING.methods["Rank"].request_class is ranking.RankRequest
    assert list(RANKING.methods) == ["Rank"]


def test_an_unknown_file_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        names_of("inference/none.proto")


def test_the_default_pool_stays_empty() -> None:
    out = run_python(
        """
        from anabranch_wire import oip, ranking
        from google.protobuf import descriptor_pool
        for name in ("inference.ModelInferRequest", "anabranch.v1.RankRequest"):
            try:
                descriptor_pool.Default().FindMessageTypeByName(name)
            except KeyError:
                print("absent")
        """
    )
    assert out.split() == ["absent", "absent"]


@pytest.mark.parametrize("ours_first", [True, False])
def test_tritonclient_imports_beside_us_and_reads_what_we_write(ours_first: bool) -> None:
    imports = ["from anabranch_wire import oip, ranking", "import tritonclient.grpc as triton"]
    out = run_python(
        "\n".join(imports if ours_first else imports[::-1])
        + textwrap.dedent(
            """
            from tritonclient.grpc import service_pb2 as theirs

            tensor = oip.ModelInferRequest.InferInputTensor(name="x", shape=[1])
            request = oip.ModelInferRequest(
                model_name="m", inputs=[tensor], raw_input_contents=[b"1234"])
            same = theirs.ModelInferRequest.FromString(request.SerializeToString())
            assert same.inputs[0].name == "x" and same.raw_input_contents[0] == b"1234"
            assert oip.ModelInferRequest.FromString(same.SerializeToString()) == request

            config = oip.ModelConfig(
                name="m", platform="onnxruntime_onnx", backend="onnxruntime", max_batch_size=0,
                version_policy=oip.ModelVersionPolicy(
                    latest=oip.ModelVersionPolicy.Latest(num_versions=1)),
                input=[oip.ModelInput(name="x", data_type=oip.TYPE_FP32, dims=[-1, 3])],
                output=[oip.ModelOutput(name="y", data_type=oip.TYPE_BF16, dims=[-1])],
                instance_group=[oip.ModelInstanceGroup(
                    name="g", count=2, kind=oip.ModelInstanceGroup.KIND_CPU)],
                default_model_filename="model.onnx",
                parameters={"user_inputs": oip.ModelParameter(string_value="u")},
            )
            response = oip.ModelConfigResponse(config=config)
            read = theirs.ModelConfigResponse.FromString(response.SerializeToString()).config
            assert read.input[0].dims == [-1, 3] and read.output[0].data_type == 14
            assert read.instance_group[0].count == 2 and read.backend == "onnxruntime"
            assert oip.ModelConfig.FromString(read.SerializeToString()) == config
            print("ok")
            """
        )
    )
    assert out == "ok\n"


def test_every_field_has_tritons_number_and_type() -> None:
    out = run_python(
        """
        from google.protobuf import descriptor_pool
        from tritonclient.grpc import service_pb2
        from anabranch_wire.descriptors import POOL

        theirs = descriptor_pool.Default()
        fields = 0

        def compare(message):
            global fields
            other = theirs.FindMessageTypeByName(message.full_name)
            for field in message.fields:
                twin = other.fields_by_name[field.name]
                kind = lambda f: (f.number, f.type, f.is_repeated,
                                  f.message_type and f.message_type.full_name,
                                  f.enum_type and f.enum_type.full_name,
                                  f.containing_oneof and f.containing_oneof.name)
                assert kind(field) == kind(twin), field.full_name
                fields += 1
            for enum in message.enum_types:
                compare_enum(enum)
            for nested in message.nested_types:
                compare(nested)

        def compare_enum(enum):
            values = lambda e: {value.name: value.number for value in e.values}
            assert values(enum) == values(theirs.FindEnumTypeByName(enum.full_name))

        file = POOL.FindFileByName("inference/grpc_service.proto")
        for message in file.message_types_by_name.values():
            compare(message)
        for enum in file.enum_types_by_name.values():
            compare_enum(enum)
        other = theirs.FindServiceByName("inference.GRPCInferenceService")
        for method in file.services_by_name["GRPCInferenceService"].methods:
            twin = other.FindMethodByName(method.name)
            for side in ("input_type", "output_type"):
                assert getattr(method, side).full_name == getattr(twin, side).full_name
            assert method.client_streaming == twin.client_streaming
            assert method.server_streaming == twin.server_streaming
        print(fields)
        """
    )
    assert int(out) > 150


@pytest.fixture
def address() -> Iterator[str]:
    """A server with one generic handler per method of RANKING, and reflection."""
    server = grpc.server(ThreadPoolExecutor(2))

    def rank(data: bytes, context: grpc.ServicerContext) -> bytes:
        request = ranking.RankRequest.FromString(data)
        answer = ranking.RankResponse(model_name=request.model_name, delta=3)
        return answer.SerializeToString()

    handlers = {name: grpc.unary_unary_rpc_method_handler(rank) for name in RANKING.methods}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(RANKING.name, handlers)])
    reflection.enable_server_reflection([RANKING.name, INFERENCE.name], server, pool=POOL)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_a_generic_handler_is_called_by_path(address: str) -> None:
    method = RANKING.methods["Rank"]
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(
            method.path, lambda m: m.SerializeToString(), method.response_class.FromString
        )
        answer = call(ranking.RankRequest(model_name="ctr"), timeout=10)

    assert answer == ranking.RankResponse(model_name="ctr", delta=3)


@pytest.mark.parametrize("service", [INFERENCE, RANKING])
def test_reflection_serves_our_descriptors(address: str, service: Service) -> None:
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert service.name in database.get_services()
        reflected = DescriptorPool(database).FindServiceByName(service.name)

    assert [method.name for method in reflected.methods] == list(service.methods)


def test_the_generated_files_are_current(tmp_path: Path) -> None:
    wire = tmp_path / "clients/python/anabranch_wire"
    wire.mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    shutil.copytree(CLIENTS / "proto", tmp_path / "clients/proto")
    shutil.copy(CLIENTS.parent / "scripts/generate_protos", tmp_path / "scripts")

    subprocess.run(
        [tmp_path / "scripts/generate_protos"],
        env={**os.environ, "PYTHON": sys.executable},
        check=True,
        timeout=120,
    )

    made = sorted(path.name for path in wire.iterdir())
    assert made == ["oip.binpb", "oip.pyi", "ranking.binpb", "ranking.pyi"]
    for name in made:
        current = CLIENTS / "python/anabranch_wire" / name
        assert (wire / name).read_bytes() == current.read_bytes(), "run scripts/generate_protos"
