"""Answers of S3: what is in them, or the errors that they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from larder.errors import LarderError, RetryableError
from larder.store.calls import Call, connection_errors
from larder.store.http import Answer
from larder.store.s3_errors import answer_of_body, s3_error

__all__ = ["content", "document", "element", "error_of", "streamed"]

_MOST_WAIT_SECONDS = 60.0


def error_of(answer: Answer, call: Call) -> LarderError:
    """The error that an answer is."""
    body = content(answer, call).decode("utf-8", "replace")
    error = s3_error(
        answer_of_body(answer.status, body, answer.headers.get("x-amz-bucket-region", "")), call
    )
    wait = answer.headers.get("retry-after", "")
    if isinstance(error, RetryableError) and wait.isdigit():
        error.after_seconds = min(float(wait), _MOST_WAIT_SECONDS)
    return error


def document(answer: Answer, call: Call) -> str:
    """The XML of an answer. S3 answers 200 before it knows whether a long operation succeeds.

    Raises:
        LarderError: The document is an error.
    """
    body = content(answer, call).decode("utf-8", "replace")
    if "<Error>" in body:
        said = answer_of_body(500, body)
        raise s3_error(said, call)
    return body


def content(answer: Answer, call: Call) -> bytes:
    """The whole body of an answer; raises the errors of `connection_errors`."""
    with connection_errors(call):
        return answer.read()


def streamed(answer: Answer, call: Call) -> Iterator[bytes]:
    """The body of an answer, in buffers; raises the errors of `connection_errors`."""
    with connection_errors(call):
        yield from answer


def element(body: str, name: str) -> str:
    """The text of the first element of this name; empty if there is none."""
    found = re.search(f"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return unescape(found[1].strip()) if found else ""
