"""`keras-transformer serve --export DIR`: a server of TensorFlow Serving's REST API, and of gRPC if asked for.

Exit status: 0 after SIGTERM or Ctrl-C, when what had arrived is answered; 1 if the export or the options are of no use,
or the address is taken.
"""

import asyncio
import dataclasses
import importlib.util
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import tyro

from keras_transformer.commands import PROGRAM, Integer, Text
from keras_transformer.files import (
    CHECKPOINTS_FOLDER,
    EXPORT_FOLDER,
    MODEL_FILE,
    exported_versions,
    is_export,
    is_version_name,
)
from keras_transformer.server.options import ServingOptions
from keras_transformer.start_up import start_tensorflow

# Import name to distribution of what the extra `serve` installs.
_EXTRA = {"aiohttp": "aiohttp", "prometheus_client": "prometheus-client"}
_URL_MARKS = "/:?#%"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Served:
    """What is served; its options come before those of the server.

    Args:
        export: folder of an export: one version (with saved_model.pb), or numbered versions, of which the newest is
            served; or a run directory with its exports.
        name: of the model in URLs. Default: the name of the folder that holds the versions, or of the run.
    """

    export: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    name: Text = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Serve(ServingOptions, _Served):
    """Serve an export over HTTP, in the way of TensorFlow Serving, with a page to try it.

    It is for laptops, tests and small installations; for others there is TensorFlow Serving itself, which takes the
    same export and the same requests. A newer version in the folder replaces the one that is served. Nothing checks
    who asks: the default address is reached from this machine only.
    """

    host: Annotated[str, tyro.conf.arg(metavar="TEXT")] = ServingOptions.host
    grpc_port: Integer = ServingOptions.grpc_port

    def __post_init__(self):
        """Leave it to `check` to say what is wrong, in a line."""

    def __call__(self):
        """Serve until a signal, or end the process with a word on standard error."""
        # What happens while it serves: versions that come and go.
        logging.basicConfig(level=logging.WARNING, format=f"{PROGRAM}: %(message)s", stream=sys.stderr)
        logging.getLogger("keras_transformer.server").setLevel(logging.INFO)
        try:
            name, options = self.check()
        except (ValueError, OSError) as error:
            sys.exit(f"{PROGRAM}: error: {error}")
        asyncio.run(_serve(name, self.directory, options))

    @property
    def directory(self):
        """The folder of the versions: of a run, the folder of its exports."""
        inside = self.export / EXPORT_FOLDER
        return inside if not exported_versions(self.export) and exported_versions(inside) else self.export

    def check(self):
        """Return the name of the model and the options of the server; takes no time.

        Raises:
            ValueError, OSError: if an option is out of range, there is no such folder, or a package is missing.
        """
        options = ServingOptions(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(ServingOptions)}
        )
        if not self.export.is_dir():
            raise ValueError(f"`--export` must be a folder. Received: {self.export}")
        is_run = (self.export / MODEL_FILE).is_file() or (self.export / CHECKPOINTS_FOLDER).is_dir()
        if is_run and not exported_versions(self.directory):
            raise ValueError(
                "`--export` must hold an export; write one with export/export_saved_model.py. "
                f"Received: {self.export}, a run that has none"
            )
        name = self.name
        if name is None:
            folder = self.export.resolve()
            is_version = is_export(folder) and is_version_name(folder.name)
            name = folder.parent.name if is_version else folder.name
        if not name or any(mark in name for mark in _URL_MARKS) or not name.isprintable():
            raise ValueError(f"`--name` must be printable, without any of {_URL_MARKS}. Received: {name!r}")
        missing = [package for module, package in _EXTRA.items() if importlib.util.find_spec(module) is None]
        if missing:
            raise ValueError(
                f"`serve` needs {' and '.join(missing)}: pip install 'keras-transformer-translation[serve]'"
            )
        return name, options


async def _serve(name, directory, options):
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, number, stop)

    start_tensorflow()
    from keras_transformer.server.http_server import HttpServer
    from keras_transformer.server.servable import ServingError
    from keras_transformer.server.versions import ServedVersions

    versions = ServedVersions(name, directory, options)
    http = HttpServer(versions)
    servers = [http]
    try:
        await http.start()  # before the model, which takes its time: a port that is taken shows at once
        _say(f"Loading {directory}; {http.address}/healthz says when it is done")
        if await _done_before(stop, versions.start()):
            if options.grpc_port is not None:
                servers.append(await _start_grpc(versions))
            _say(f"Serving {name} version {versions.current_version} at {http.address}/")
            await stop.wait()
        _say("Stopping when what has arrived is answered")
    except (OSError, ServingError) as error:
        sys.exit(f"{PROGRAM}: error: {error}")
    finally:
        await http.stop_listening()
        await asyncio.gather(versions.stop(), *(server.stop() for server in servers))


async def _start_grpc(versions):
    from keras_transformer.server.grpc_server import GrpcServer

    grpc = GrpcServer(versions, host=versions.options.host, port=versions.options.grpc_port)
    await grpc.start()
    _say(f"gRPC at port {grpc.port}")
    return grpc


async def _done_before(stop, work):
    """Return whether work is done before the server is told to stop; else it is given up."""
    work, stopped = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if work.done():
        work.result()
        return True
    work.cancel()
    return False


def _on_signal(number, stop):
    """Ask for an end in order at the first signal, end at the second."""
    if stop.is_set():
        os._exit(128 + number)
    stop.set()


def _say(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
