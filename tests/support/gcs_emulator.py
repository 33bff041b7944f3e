"""A server that imitates Google Cloud Storage on this machine, for the duration of a block.

It is gcp-storage-emulator, a Python package. It checks no credentials and ignores conditions;
tests/contract/store_gaps.py says what else it does not do.

As it comes, it answers one request at a time, and the next when the answer has been read: whoever
reads an object and writes another meanwhile would wait for ever. So ``python -m`` this module runs
it with a thread for each request, and a lock around its storage.
"""

import functools
import http.server
import inspect
import json
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

from larder.errors import ConfigError
from tests.support.servers import free_port, served_folder, server_process


@dataclass(frozen=True, slots=True)
class GcsEmulator:
    endpoint: str

    def create_bucket(self, name: str) -> None:
        try:
            self._call(f"b/{quote(name, safe='')}", None)
        except HTTPError as error:
            error.close()
            self._call("b?project=larder", {"name": name})

    def resource(self, bucket: str, key: str) -> dict[str, Any]:
        """What it says about an object, unparsed."""
        return self._call(f"b/{quote(bucket, safe='')}/o/{quote(key, safe='')}", None)

    def _call(self, path: str, document: dict[str, Any] | None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/{path}",
            data=None if document is None else json.dumps(document).encode(),
            headers={"Content-Type": "application/json"},
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables with which Google's clients use it."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint, "NO_GCE_CHECK": "true"}


@contextmanager
def gcs_emulator() -> Iterator[GcsEmulator]:
    """Serve GCS from memory.

    Raises:
        ConfigError: ``config.missing_package``.
        FatalError: ``run.timeout``: it did not start; with its last output.
    """
    if find_spec("gcp_storage_emulator") is None:
        hint = "pip install gcp-storage-emulator"
        message = "gcp-storage-emulator is not installed"
        raise ConfigError("config.missing_package", message, hint=hint)
    with served_folder("larder-gcs-") as own:
        port = free_port()
        command = [sys.executable, "-m", "tests.support.gcs_emulator", str(port)]
        with server_process(command, own / "log", port):
            yield GcsEmulator(f"http://127.0.0.1:{port}")


def _locked(lock: threading.RLock, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any, **more: Any) -> Any:
        with lock:
            return method(*arguments, **more)

    return call


def _serve(port: int) -> None:
    from gcp_storage_emulator import server, storage

    class Threaded(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server.server.HTTPServer = Threaded
    lock = threading.RLock()
    for name, method in list(vars(storage.Storage).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(storage.Storage, name, _locked(lock, method))
    server.create_server("127.0.0.1", port, in_memory=True).run()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
