"""One gateway of Skyplane on a loopback address: ``skyplane_gateway.py REGION-TAG ADDRESS FOLDER``.

The daemon is Skyplane's own, with its own sockets, compression and encryption. In its image,
stunnel answers on port 8080 with TLS and passes requests on to port 8081; here, the same
application is served on both. Everything listens on the address given
instead of on all of them.

While the folder that ``LARDER_SKYPLANE_LOCAL`` names has a folder ``hold``, only one part of large
objects is uploaded: so the transfer stays in its middle, however fast the machine is.
"""

import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any


class _Socket(socket.socket):
    """Listens on one address where Skyplane asks for all of them."""

    address = "127.0.0.1"

    def bind(self, place: Any) -> None:
        super().bind((self.address, place[1]) if place[0] == "0.0.0.0" else place)


def _hold_parts() -> None:
    from skyplane.obj_store.s3_interface import S3Interface

    hold = Path(os.environ["LARDER_SKYPLANE_LOCAL"]) / "hold"
    upload = S3Interface.upload_object

    def upload_held(
        self: Any, path: str, key: str, part: int | None, *args: Any, **kept: Any
    ) -> Any:
        if part is not None and hold.is_dir():
            try:
                (hold / "first part").touch(exist_ok=False)  # of all processes
            except FileExistsError:
                while hold.is_dir():
                    time.sleep(0.05)
        return upload(self, path, key, part, *args, **kept)

    S3Interface.upload_object = upload_held


def main(region_tag: str, address: str, folder: Path) -> None:
    from skyplane.gateway import gateway_daemon, gateway_daemon_api
    from werkzeug.serving import make_server

    _Socket.address = address
    socket.socket = _Socket  # type: ignore[misc]

    class Api(gateway_daemon_api.GatewayDaemonAPI):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options, host=address)
            tls = make_server(address, 8080, self.app, threaded=True, ssl_context="adhoc")
            threading.Thread(target=tls.serve_forever, daemon=True).start()

    gateway_daemon.GatewayDaemonAPI = Api
    _hold_parts()
    daemon = gateway_daemon.GatewayDaemon(
        region=region_tag, chunk_dir=folder / "chunks", use_tls=False
    )
    daemon.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
