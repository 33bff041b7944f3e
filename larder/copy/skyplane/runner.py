"""Runs one Skyplane transfer, in Skyplane's own environment: Larder never imports this module.

``python -I runner.py`` reads a request, one line of JSON, from stdin, and stops when stdin ends:
its parent process is gone, or asks it to stop. It writes one JSON object a line to stdout:

- ``planned`` with the regions where it will start machines; ``transferring`` when they are ready;
- ``progress`` with the bytes written so far; ``error`` with a message, or ``done``;
- ``deprovisioned``, once none of its machines runs any more.

With ``"sweep": true`` in the request it transfers nothing: it ends the machines that a killed
runner left behind, which carry the client ID of the request as a tag.

The runner guards against faults of Skyplane 0.3.2, its last release:

- An error in a thread is lost, and the transfer waits for ever.
- A hook is called wrongly, so that objects uploaded in parts never appear.
- Statistics go to a server of its authors, and the code that sends them hides the error.
- Machines outlive an error, or switch themselves off while many objects are handed out.
- Service account keys, key pairs and firewall rules are never removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.2
KEEP_ALIVE_SECONDS = 60.0
DEPROVISION_SECONDS = 240
SETTLE_SECONDS = 5.0
"""Pause before a second sweep: a machine may be requested just before a runner is killed."""
_LONGEST_MESSAGE = 2000
_HOME = "larder-skyplane-"
_AWAITED = ("prefetch", "_run_multipart_chunk_thread")
"""Functions of Skyplane whose threads list, and begin uploads; Python names threads after them."""
_RULE = re.compile(r"(?:allow-default|skyplane)-[0-9a-f]{8}")


class StoppedError(Exception):
    """The transfer was told to stop, or lost an error in one of its threads."""


class Events:
    """Writes events to the original stdout; everything else that is printed goes to stderr."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def __call__(self, event: str, **fields: Any) -> None:
        """Write one event; without effect if no process listens any more."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._file.write(json.dumps({"event": event, **fields}) + "\n")
            self._file.flush()


class TransferRunner:
    """One transfer, or the sweep after a killed transfer; tests replace machines in ``local``."""

    def __init__(
        self,
        request: dict[str, Any],
        emit: Callable[..., None],
        local: Callable[[Any, Any], None] = lambda client, pipeline: None,
    ) -> None:
        self._request = request
        self._emit = emit
        self._local = local
        self.stopped = threading.Event()
        self.handed_out = threading.Event()
        """Set once a gateway has every chunk."""
        self._lost: list[BaseException] = []
        self._client: Any = None
        self._provisioning = False
        self._bytes = 0

    def transfer(self) -> None:
        """Provision, transfer, and deprovision however the transfer ended."""
        threading.excepthook = self._lose
        worker = threading.Thread(target=self._work_noting_errors, daemon=True)
        worker.start()
        while worker.is_alive() and not self._lost and not self.stopped.is_set():
            worker.join(POLL_SECONDS)
        if self.stopped.is_set():
            self._emit("error", message="stopped")
        elif self._lost:
            self._emit("error", message=_message(self._lost[0]))
        else:
            self._emit("done")
        signal.alarm(DEPROVISION_SECONDS)  # ends this process, after which the caller sweeps
        if self._client is not None:
            self._client.provisioner.deprovision()
            self._remove_traces()
        if not self._provisioning:  # a machine that was not fully started would be missed
            self._emit("deprovisioned")

    def sweep(self) -> None:
        """End the machines that carry the client ID, and remove the run's other traces."""
        self._client = self._new_client()
        self._end_machines()
        if self._request["regions"]:
            time.sleep(SETTLE_SECONDS)
            self._end_machines()
        self._remove_traces()
        self._emit("deprovisioned")

    def _end_machines(self) -> None:
        tags = {"skyplane": "true", "skyplaneclientid": self._request["client"]}
        for tag in self._request["regions"]:
            provider, _, region = tag.partition(":")
            cloud = getattr(self._client.provisioner, provider)
            if provider == "aws":  # Skyplane takes an error for an empty list
                cloud.auth.get_boto3_client("ec2", region).describe_instances(MaxResults=5)
            for server in cloud.get_matching_instances(region=region, tags=tags):
                server.terminate_instance()

    def _work_noting_errors(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - the main thread reports it
            self._lost.append(error)

    def _work(self) -> None:
        self._client = client = self._new_client()
        pipeline = client.pipeline(max_instances=self._request["max_instances"])
        pipeline.queue_copy(self._request["source"], self._request["target"], recursive=True)
        (job,) = pipeline.jobs_to_dispatch
        job._pre_filter_fn = self._filter(job.src_prefix)
        job.verify = lambda: None  # the caller verifies, and copies missing objects
        self._local(client, pipeline)
        plane = pipeline.create_dataplane(debug=False)
        plane.copy_gateway_logs = lambda: None  # may hang, and would hide the error
        self._emit("planned", regions=[each.region_tag for each in plane.topology.get_gateways()])
        self._provisioning = True
        plane.provision(spinner=False)
        self._provisioning = False
        self._emit("transferring")
        threading.Thread(target=self._keep_alive, args=(plane,), daemon=True).start()
        self._track(plane, pipeline)

    def _new_client(self) -> Any:
        import skyplane
        from skyplane.api import client as client_module
        from skyplane.api import dataplane, pipeline, tracker

        for module in (client_module, dataplane, pipeline):
            module.tmp_log_dir = Path.home() / "logs"  # instead of one for all users
        tracker.UsageClient = _NoUsage
        tracker.print_stats_completed = lambda **_: None
        project = self._request["project"]
        client = skyplane.SkyplaneClient(
            aws_config=skyplane.AWSConfig() if _uses(self._request, "s3") else None,
            gcp_config=skyplane.GCPConfig(project) if _uses(self._request, "gs") else None,
            transfer_config=skyplane.TransferConfig(requester_pays=self._request["requester_pays"]),
            log_dir=str(Path.home() / "logs"),
        )
        if _uses(self._request, "gs"):
            _record_rules(client.provisioner.gcp.network)
        return client

    def _filter(self, prefix: str) -> Callable[[Any], bool]:
        """Return a filter that takes wanted objects, unless Skyplane would lose or misplace them.

        Skyplane skips empty objects and then reports them as lost, and drops the second of two
        slashes after the prefix. Both listings are in the order of the keys' bytes.
        """
        keys = _lines(self._request["keys"])
        wanted = next(keys, None)

        def take(listed: Any) -> bool:
            nonlocal wanted
            key = listed.key[len(prefix) :]
            while wanted is not None and wanted.encode() < key.encode():
                wanted = next(keys, None)
            return key == wanted and bool(listed.size) and not key.startswith("/")

        return take

    def _track(self, plane: Any, pipeline: Any) -> None:
        from skyplane.api.tracker import TransferProgressTracker

        class Tracker(TransferProgressTracker):  # type: ignore[misc]
            """Keeps the error that ends the tracker, and does not keep the process from ending."""

            failure: BaseException | None = None

            def run(self) -> None:
                try:
                    super().run()
                except BaseException as error:  # noqa: BLE001 - `_track` raises it
                    self.failure = error

        tracker = Tracker(plane, pipeline.jobs_to_dispatch, pipeline.transfer_config, _Hook(self))
        tracker.daemon = True
        tracker.start()
        tracker.join()
        if tracker.failure is not None:
            raise tracker.failure

    def written(self, new_bytes: int) -> None:
        self._bytes += new_bytes
        self._emit("progress", bytes=self._bytes)

    def _lose(self, caught: threading.ExceptHookArgs) -> None:
        """Keep the error of a thread that Skyplane waits for although the thread has ended."""
        name = caught.thread.name if caught.thread else ""
        if any(f"({awaited})" in name for awaited in _AWAITED):
            self._lost.append(caught.exc_value or StoppedError("a thread ended with an error"))
        else:
            threading.__excepthook__(caught)

    def _keep_alive(self, plane: Any) -> None:
        """Keep machines alive, which switch themselves off 15 minutes after the last command.

        Once all chunks are handed out, Skyplane itself sends commands.
        """
        while not self.handed_out.wait(KEEP_ALIVE_SECONDS):
            for server in list(plane.bound_nodes.values()):
                with contextlib.suppress(Exception):
                    server.run_command("echo 1")

    def _remove_traces(self) -> None:
        """Remove this run's EC2 key pairs, service account key and firewall rules."""
        provisioner = self._client.provisioner
        for name in _rules().read_text().split() if _rules().exists() else ():
            with contextlib.suppress(Exception):
                provisioner.gcp.remove_gateway_rule(name)
        folder = Path.home() / ".skyplane" / "keys"
        for path in folder.glob("aws/*.pem"):
            region = path.stem.removeprefix(f"{provisioner.aws.key_prefix}-")
            with contextlib.suppress(Exception):
                provisioner.aws.key_manager.delete_key(region, path.stem)
        for path in folder.glob("gcp/*/service_account_key.json"):
            with contextlib.suppress(Exception):
                made = json.loads(path.read_text())
                name = f"projects/-/serviceAccounts/{made['client_email']}/keys/"
                accounts = provisioner.gcp.auth.get_gcp_client("iam").projects().serviceAccounts()
                accounts.keys().delete(name=name + made["private_key_id"]).execute()
                path.unlink()


class _Hook:
    """Hook for Skyplane's tracker, with the arguments that Skyplane passes and does not declare."""

    def __init__(self, runner: TransferRunner) -> None:
        self._runner = runner

    def on_chunk_dispatched(self, chunks: list[Any]) -> None:
        """Do nothing."""

    def on_dispatch_end(self) -> None:
        self._runner.handed_out.set()

    def on_chunk_completed(self, chunks: list[Any], region_tag: str | None = None) -> None:
        del region_tag
        if chunks:
            self._runner.written(sum(chunk.chunk_length_bytes for chunk in chunks))

    def on_transfer_end(self, transfer_stats: object = None) -> None:
        """Do nothing."""


class _NoUsage:
    """Replaces the client that sends statistics."""

    @classmethod
    def log_exception(cls, *_: object, **__: object) -> None:
        """Send nothing."""

    log_transfer = log_exception


def _rules() -> Path:
    return Path.home() / "firewall-rules"


def _record_rules(network: Any) -> None:
    """Note the firewall rules of this run; Skyplane forgets the rule that lets every address in."""
    create = network.create_firewall_rule

    def recorded(name: str, *args: Any, **options: Any) -> Any:
        if _RULE.fullmatch(name):
            with _rules().open("a") as file:
                file.write(f"{name}\n")
        return create(name, *args, **options)

    network.create_firewall_rule = recorded


def _lines(path: str) -> Iterator[str]:
    with open(path, encoding="utf-8") as file:
        yield from map(json.loads, file)


def _message(error: BaseException) -> str:
    """Return the messages of an error and its causes, with the reports of gateways."""
    texts: list[str] = []
    shown: BaseException | None = error
    while shown is not None and len(texts) < 4:
        text = f"{type(shown).__name__}: {shown}".removeprefix("StoppedError: ")
        errors = getattr(shown, "errors", None)
        if isinstance(errors, dict):
            text += "".join(f"; {lines[0].strip()[-500:]}" for lines in errors.values() if lines)
        texts.append(text)
        shown = shown.__cause__ or shown.__context__
    return " <- ".join(texts)[:_LONGEST_MESSAGE]


def _uses(request: dict[str, Any], scheme: str) -> bool:
    return any(request[side].startswith(f"{scheme}://") for side in ("source", "target"))


def _configure(request: dict[str, Any]) -> None:
    """Write Skyplane's configuration into the private HOME, before Skyplane is imported."""
    root = Path.home() / ".skyplane"
    root.mkdir(mode=0o700, exist_ok=True)
    client = f"[client]\nanon_clientid = {request['client']}\n"
    (root / "host_uuid").write_text(client)
    project = f"project_id = {request['project']}\n" if request["project"] else ""
    Path(os.environ["SKYPLANE_CONFIG"]).write_text(
        f"{client}"
        f"[aws]\naws_enabled = {_uses(request, 's3')}\n"
        "[azure]\nazure_enabled = False\n"
        f"[gcp]\ngcp_enabled = {_uses(request, 'gs')}\n{project}"
        "[flags]\nusage_stats = False\nnative_cmd_enabled = False\nautoconfirm = True\n"
        f"max_instances = {request['max_instances']}\n"
        f"requester_pays = {request['requester_pays']}\n"
    )


def _stop_at_end_of_input(runner: TransferRunner) -> None:
    sys.stdin.read()
    runner.stopped.set()


def main(local: Callable[[Any, Any], None] = lambda client, pipeline: None) -> None:
    """Execute the request on stdin, and end the process, even if threads still run."""
    emit = Events()
    status = 0
    try:
        request = json.loads(sys.stdin.readline())
        _configure(request)
        runner = TransferRunner(request, emit, local)
        if request["sweep"]:
            runner.sweep()
            if request["remove_home"] and Path.home().name.startswith(_HOME):
                shutil.rmtree(Path.home(), ignore_errors=True)
        else:
            threading.Thread(target=_stop_at_end_of_input, args=(runner,), daemon=True).start()
            runner.transfer()
    except BaseException as error:  # noqa: BLE001 - the caller shows it
        emit("error", message=_message(error))
        status = 1
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
