"""What the answers of GCS mean: the table in `larder.store.gcs.answers`."""

import json

import pytest

from larder.errors import NotFoundError, PreconditionError, RetryableError
from larder.store.calls import Call
from larder.store.gcs.answers import gcs_error

STORE = "gs://bucket/p/"
READ, WRITE, ALL = Call(STORE, "k"), Call(STORE, "k", writing=True), Call(STORE)
ABSENT = Call(STORE, "k", writing=True, if_absent=True)
NO_BUCKET = "The specified bucket does not exist."
DENIED = "robot@p.iam.gserviceaccount.com does not have storage.objects.get access to the object."
BILLING = "The billing account for the owning project is disabled in state absent"
PAYS = "Bucket is a requester pays bucket but no user project provided."


def body(message: str, reason: str = "") -> bytes:
    errors = [{"message": message, "reason": reason}] if reason else []
    return json.dumps({"error": {"message": message, "errors": errors}}).encode()


BUSY = "store.unavailable"


@pytest.mark.parametrize(
    ("status", "said", "call", "code"),
    [
        (404, body(NO_BUCKET, "notFound"), READ, "store.missing"),
        (404, NO_BUCKET.encode(), READ, "store.missing"),
        (404, b"", ALL, "store.missing"),
        (404, b"", WRITE, "store.missing"),
        (404, body("No such object: bucket/p/k"), READ, "object.missing"),
        (404, b"", READ, "object.missing"),
        (401, body("Invalid Credentials", "authError"), READ, "store.denied"),
        (403, body(DENIED, "forbidden"), READ, "object.unreadable"),
        (403, body(DENIED, "forbidden"), ALL, "store.denied"),
        (403, body("slow", "userRateLimitExceeded"), WRITE, BUSY),
        (403, body(BILLING, "accountDisabled"), READ, "store.denied"),
        (403, body(BILLING), WRITE, "store.denied"),
        (400, body(PAYS, "required"), READ, "store.denied"),
        (400, body("Invalid object name."), WRITE, "object.bad_key"),
        (400, body("Provided MD5 hash does not match"), WRITE, BUSY),
        (400, body("Invalid argument."), WRITE, "store.refused"),
        (400, body("Invalid argument."), READ, "object.unreadable"),
        (412, body("conditionNotMet"), ABSENT, "object.exists"),
        (412, body("conditionNotMet"), WRITE, "object.changed"),
        (416, b"", READ, "object.truncated"),
        *((busy, b"", WRITE, BUSY) for busy in (408, 429, 500, 502)),
        *((busy, b"<html>", ALL, BUSY) for busy in (503, 504, 520)),
        (501, b"", WRITE, "store.refused"),
        (507, b"", WRITE, "store.full"),
        (308, b"", ALL, "store.refused"),
    ],
)
def test_every_line_of_the_table(status, said, call, code):
    error = gcs_error(status, said, "", call)
    assert error.code == code
    assert isinstance(error, RetryableError) == (code == BUSY)
    assert isinstance(error, PreconditionError) == (status == 412)
    assert isinstance(error, NotFoundError) == (code == "object.missing")
    assert "<" not in str(error)
    assert STORE in error.where


@pytest.mark.parametrize(
    "said",
    [b"[]", b'{"error": "text"}', b'{"error": {"errors": [3]}}', b'{"error": null}', b"\xff\xfe"],
)
def test_any_body_is_understood_somehow(said):
    assert isinstance(gcs_error(503, said, "", READ), RetryableError)


def test_the_missing_permission_is_named_and_no_token():
    said = body(f"{DENIED} Bearer ya29.a0Af-secret upload_id=ABC-secret", "forbidden")
    text = str(gcs_error(403, said, "", ALL))
    assert "storage.objects.get" in text
    assert "secret" not in text
    xml = b"<?xml?><Error><Code>AccessDenied</Code><Message>Access denied.</Message></Error>"
    assert "Access denied." in str(gcs_error(403, xml, "", ALL))


@pytest.mark.parametrize(("wait", "seconds"), [("7", 7), ("9999", 9999), ("", 0), ("soon", 0)])
def test_it_waits_as_long_as_it_is_told(wait, seconds):
    for status, reason in ((429, ""), (503, ""), (403, "rateLimitExceeded")):
        error = gcs_error(status, body("slow", reason), wait, READ)
        assert isinstance(error, RetryableError)
        assert error.after_seconds == seconds
