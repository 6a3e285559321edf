"""The files for the stock TensorFlow Serving image: they parse as the server parses them, and agree with each other.

No server takes part. What the server would refuse to start with is checked here: unknown flags, unknown fields, paths
and ports that differ between files.
"""

import json
import re
import shlex
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format, wrappers_pb2
from tensorflow_serving.config import model_server_config_pb2

FOLDER = Path(__file__).parents[2] / "export" / "tensorflow_serving"

# Flags of the server's main.cc that have a meaning for a translator.
FLAGS = set(
    "port rest_api_port rest_api_num_threads rest_api_timeout_in_ms rest_api_enable_cors_support enable_batching "
    "batching_parameters_file enable_per_model_batching_parameters model_config_file "
    "model_config_file_poll_wait_seconds model_name model_base_path num_load_threads num_unload_threads "
    "max_num_load_retries load_retry_interval_micros file_system_poll_wait_seconds flush_filesystem_caches "
    "tensorflow_session_parallelism tensorflow_intra_op_parallelism tensorflow_inter_op_parallelism ssl_config_file "
    "platform_config_file grpc_channel_arguments grpc_max_threads enable_model_warmup "
    "num_request_iterations_for_warmup version monitoring_config_file".split()
)


def message_classes():
    """BatchingParameters and MonitoringConfig, which `tensorflow-serving-api` leaves out; the fields of the server's
    session_bundle_config.proto and monitoring_config.proto."""
    file = descriptor_pb2.FileDescriptorProto(
        name="left_out.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    kinds = descriptor_pb2.FieldDescriptorProto

    def message(name, **fields):
        added = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            repeated = kind == "repeated int64"
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind in ("bool", "string", "repeated int64"):
                simple = {"bool": kinds.TYPE_BOOL, "string": kinds.TYPE_STRING, "repeated int64": kinds.TYPE_INT64}
                added.field.add(name=field, number=number, label=label, type=simple[kind])
            else:
                added.field.add(name=field, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=kind)

    integer, boolean = ".google.protobuf.Int64Value", ".google.protobuf.BoolValue"
    message(
        "BatchingParameters",
        max_batch_size=integer,
        batch_timeout_micros=integer,
        max_enqueued_batches=integer,
        num_batch_threads=integer,
        thread_pool_name=".google.protobuf.StringValue",
        allowed_batch_sizes="repeated int64",
        pad_variable_length_inputs="bool",
        enable_large_batch_splitting=boolean,
        max_execution_batch_size=integer,
    )
    message("PrometheusConfig", enable="bool", path="string")
    message("MonitoringConfig", prometheus_config=".tensorflow.serving.PrometheusConfig")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    names = ("BatchingParameters", "MonitoringConfig")
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tensorflow.serving.{name}")) for name in names]


BatchingParameters, MonitoringConfig = message_classes()


def parse(name, message):
    return text_format.Parse((FOLDER / name).read_text("utf-8"), message)


@pytest.fixture(scope="module")
def service():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((FOLDER / "docker-compose.yml").read_text("utf-8"))["services"]
    assert list(services) == ["translation"]
    return services["translation"]


@pytest.fixture(scope="module")
def dockerfile():
    """Instructions of the Dockerfile, by name; lines that continue joined, comments left out."""
    lines = [
        line
        for line in (FOLDER / "Dockerfile").read_text("utf-8").replace("\\\n", " ").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    instructions = {}
    for line in lines:
        name, value = line.split(None, 1)
        instructions.setdefault(name, []).append(value.strip())
    return instructions


def flags(command):
    found = {}
    for argument in command:
        match = re.fullmatch(r"--(\w+)=(\S+)", argument)
        assert match, argument
        assert match[1] not in found, argument
        found[match[1]] = match[2]
    assert found.keys() <= FLAGS
    return found


@pytest.fixture(scope="module")
def compose_flags(service):
    return flags(service["command"])


@pytest.fixture(scope="module")
def model():
    (config,) = parse("models.config", model_server_config_pb2.ModelServerConfig()).model_config_list.config
    return config


def test_models(model):
    assert model.name == "en-de"
    assert model.model_platform == "tensorflow"
    assert model.base_path == f"/models/{model.name}"
    assert model.model_version_policy.latest.num_versions == 1


def test_the_way_back_to_an_older_version_parses():
    text = (FOLDER / "models.config").read_text("utf-8")
    policy = re.search(r"# To roll back.*?(model_version_policy \{.*\})$", text, re.MULTILINE)[1]
    parsed = text_format.Parse(policy, model_server_config_pb2.ModelConfig())
    assert list(parsed.model_version_policy.specific.versions) == [1]


def test_batching(compose_flags):
    batching = parse("batching.config", BatchingParameters())
    assert batching.max_batch_size.value == 32
    assert batching.batch_timeout_micros.value == 0
    assert batching.num_batch_threads.value > 0
    assert batching.max_enqueued_batches.value > 0
    # The server's own rules, should somebody fill the list in.
    sizes = list(batching.allowed_batch_sizes)
    assert sizes == sorted(set(sizes))
    assert not sizes or sizes[-1] == batching.max_batch_size.value
    # The server pads with a tensor's first value, and splits into outputs of different widths.
    assert not batching.pad_variable_length_inputs
    assert not batching.enable_large_batch_splitting.value
    assert compose_flags["enable_batching"] == "true"


@pytest.mark.parametrize("client", ["client_rest.py", "client_grpc.py"])
def test_clients_send_what_fits_a_batch(client):
    text = (FOLDER.parent / client).read_text("utf-8")
    assert re.findall(r'"--batch-size", type=int, default=(\d+)', text) == ["32"]


def test_an_unknown_field_would_be_noticed():
    with pytest.raises(text_format.ParseError, match="max_batch_sizes"):
        text_format.Parse("max_batch_sizes { value: 1 }", BatchingParameters())


def test_monitoring():
    prometheus = parse("monitoring.config", MonitoringConfig()).prometheus_config
    assert prometheus.enable
    assert prometheus.path == "/monitoring/prometheus/metrics"


def test_compose_mounts_what_the_configuration_names(service, compose_flags, model):
    mounts = {}
    for volume in service["volumes"]:
        source, target, mode = re.fullmatch(r"(\$\{.*?\}|[^:]*):([^:]*):([^:]*)", volume).groups()
        assert mode == "ro"
        mounts[target] = source
    assert mounts.keys() == {model.base_path, "/config"}
    default = re.fullmatch(r"\$\{EXPORT:-(.*)\}", mounts[model.base_path])[1]
    root = FOLDER.parents[1]
    assert (FOLDER / default).resolve() == root / "served" / model.name
    assert mounts["/config"] == "."
    for flag in ("model_config_file", "batching_parameters_file", "monitoring_config_file"):
        folder, name = compose_flags[flag].rsplit("/", 1)
        assert folder == "/config"
        assert (FOLDER / name).is_file()


def test_compose_ports(service, compose_flags):
    assert service["ports"] == ["127.0.0.1:8500:8500", "127.0.0.1:8501:8501"]
    assert (compose_flags["port"], compose_flags["rest_api_port"]) == ("8500", "8501")


def test_dockerfile_agrees_with_compose(service, dockerfile, compose_flags, model):
    assert dockerfile["FROM"] == [service["image"]] == ["tensorflow/serving:2.20.0"]
    assert json.loads(dockerfile["ENTRYPOINT"][0]) == service["entrypoint"] == ["tensorflow_model_server"]
    baked = flags(json.loads(dockerfile["CMD"][0]))
    assert baked.pop("file_system_poll_wait_seconds") == "0"
    polled = {"file_system_poll_wait_seconds", "model_config_file_poll_wait_seconds"}
    assert baked == {name: value for name, value in compose_flags.items() if name not in polled}
    assert dockerfile["EXPOSE"] == ["8500 8501"]
    (*configuration, target), (export, model_target) = map(shlex.split, dockerfile["COPY"])
    assert target == "/config/"
    assert sorted(configuration) == sorted(
        path.relative_to(FOLDER.parents[1]).as_posix() for path in FOLDER.glob("*.config")
    )
    assert export == "${EXPORT}"
    assert dockerfile["ARG"] == [f"EXPORT=served/{model.name}"]
    assert model_target == model.base_path


@pytest.mark.parametrize(("state", "status"), [("AVAILABLE", 0), ("LOADING", 1), ("UNAVAILABLE", 1)])
def test_health_check(service, model, compose_flags, state, status):
    """The command itself, against an answer of the REST API."""
    paths = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(
                json.dumps({"model_version_status": [{"version": "1", "state": state}]}, indent=1).encode()
            )

        def log_message(self, *_):
            pass

    kind, *command = service["healthcheck"]["test"]
    assert (kind, command[:2]) == ("CMD", ["bash", "-c"])
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        before = f"/{compose_flags['rest_api_port']} "
        assert before in command[2]
        command[2] = command[2].replace(before, f"/{server.server_port} ")
        done = subprocess.run(command, capture_output=True, timeout=300)
        thread.join(300)
    assert paths == [f"/v1/models/{model.name}"]
    assert (done.returncode, done.stderr) == (status, b"")


def test_every_page_names_the_same_image(service):
    pages = [FOLDER.parent / "README.md", *FOLDER.iterdir()]
    found = {image for page in pages for image in re.findall(r"tensorflow/serving:[\w.-]+", page.read_text("utf-8"))}
    assert found == {service["image"]}
