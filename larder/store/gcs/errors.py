"""What GCS's answers mean, before the table of `larder.store.calls`.

::

    answer                                          error           code
    404, the bucket does not exist, or when writing StoreError      store.missing
    401                                             StoreError      store.denied
    403 rateLimitExceeded, userRateLimitExceeded    RetryableError  store.unavailable
    403 about the billing account, or a disabled    StoreError      store.denied
    service
    400 that asks who pays                          StoreError      store.denied
    400 about a digest, when writing                RetryableError  store.unavailable
    400 about the name of the object                ObjectError     object.bad_key

Codes: https://cloud.google.com/storage/docs/json_api/v1/status-codes. In its message, Google names
the account and the permission that is missing.
"""

from __future__ import annotations

import json
import re

from larder.errors import LarderError, ObjectError, RetryableError, StoreError
from larder.store.calls import Call, Refusal, no_bucket

CREDENTIALS_HINT = (
    "run gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"
)
_NO_BUCKET = "bucket does not exist"
_RATE = {"rateLimitExceeded", "userRateLimitExceeded"}
_UNPAID = {"accountDisabled", "billingNotEnabled", "UserProjectAccountProblem", "SERVICE_DISABLED"}
_XML_MESSAGE = re.compile(r"<(?:Message|Details)>(.*?)</", re.DOTALL)


def gcs_error(status: int, body: bytes, retry_after: str, call: Call) -> LarderError:
    """The error that an answer means; the table is at the top of this module."""
    refusal = Refusal(status, *_parsed(body), retry_after)
    if status == 403 and refusal.code in _RATE:
        return refusal.busy(call)
    if status == 404 and (call.writing or _says(refusal, _NO_BUCKET)):
        return no_bucket(call)
    return _of_account(refusal, call) or _of_object(refusal, call) or refusal.error(call)


def _says(refusal: Refusal, *texts: str) -> bool:
    """Whether Google's sentence contains one of these."""
    return any(text in refusal.message.lower() for text in texts)


def _parsed(body: bytes) -> tuple[str, str]:
    """Reason and message in the body of an error: JSON usually, sometimes text or XML, or none."""
    text = body.decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, LookupError, TypeError):
        message = _XML_MESSAGE.search(text)
        return "", message[1] if message else "" if text.lstrip().startswith("<") else text
    if not isinstance(error, dict):
        return "", str(error)
    details = error.get("errors")
    first = details[0] if isinstance(details, list) and details else {}
    reason = first.get("reason") if isinstance(first, dict) else ""
    return str(reason or ""), str(error.get("message") or "")


def _of_account(refusal: Refusal, call: Call) -> StoreError | None:
    status, message = refusal.status, str(refusal)
    if status == 401:
        hint = CREDENTIALS_HINT
    elif status == 400 and _says(refusal, "requester pays", "user project"):
        message = "the bucket's requester pays, and no project was named"
        hint = "set requester_pays: true, and project: to the project that pays"
    elif status == 403 and (refusal.code in _UNPAID or _says(refusal, "billing")):
        hint = "enable billing in the project of the bucket, and in the one that pays"
    else:
        return None
    return StoreError("store.denied", message, where=call.store_url, hint=hint)


def _of_object(refusal: Refusal, call: Call) -> LarderError | None:
    if refusal.status == 400 and call.writing and _says(refusal, "crc32c", "md5"):
        message = "the store has received other bytes than were sent"
        return RetryableError("store.unavailable", message, where=call.where)
    if refusal.status == 400 and call.key and _says(refusal, "object name"):
        return ObjectError("object.bad_key", str(refusal), where=call.where)
    return None
