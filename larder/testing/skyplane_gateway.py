"""One gateway of Skyplane on a loopback address: ``skyplane_gateway.py REGION-TAG ADDRESS FOLDER``.

The daemon is Skyplane's own, with its own sockets, compression and encryption. In its image,
stunnel answers on port 8080 with TLS and passes requests on to port 8081; here, the same
application is served on both. Everything listens on the address given
instead of on all of them.
"""

from __future__ import annotations

import socket
import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["main"]


class _Socket(socket.socket):
    """Listens on one address where Skyplane asks for all of them."""

    address = "127.0.0.1"

    def bind(self, place: Any) -> None:
        """See `socket.socket.bind`."""
        super().bind((self.address, place[1]) if place[0] == "0.0.0.0" else place)  # noqa: S104


def main(region_tag: str, address: str, folder: Path) -> None:
    """Serve until killed."""
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
    daemon = gateway_daemon.GatewayDaemon(
        region=region_tag, chunk_dir=folder / "chunks", use_tls=False
    )
    daemon.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
