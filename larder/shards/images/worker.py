"""A process that transforms images: requests come on stdin, results go to stdout.

A request is a line of JSON, then ``bytes`` bytes of the image; a result is a line of JSON, then the
transformed image. The process ends with its stdin, so it does not outlive the one that started it.
"""

from __future__ import annotations

import io
import json
import sys
from typing import IO, Any

from larder.config.shape import Transform
from larder.errors import ObjectError
from larder.shards.images.transform import encode_again


def main(requests: IO[bytes], results: IO[bytes]) -> None:
    while line := requests.readline():
        request = json.loads(line)
        answer, data = _answer(request, requests.read(request["bytes"]))
        results.write(json.dumps({**answer, "bytes": len(data)}).encode() + b"\n" + data)
        results.flush()


def _answer(request: dict[str, Any], image: bytes) -> tuple[dict[str, Any], bytes]:
    options = {**request["transform"], "masks": tuple(request["transform"]["masks"])}
    try:
        data = encode_again(
            request["ext"],
            io.BytesIO(image),
            Transform(**options),
            where=request["where"],
            max_pixels=request["max_pixels"],
        )
    except ObjectError as error:
        return {"code": error.code, "message": error.message, "hint": error.hint}, b""
    except MemoryError:
        return {"memory": True}, b""
    return {}, data


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
