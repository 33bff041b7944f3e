import datetime
from unittest import mock

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from larder.store.s3.sign import Keys, encoded_path, encoded_query, signed

MOMENT = 1_780_000_000.0
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1, max_size=20)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20).map(
    lambda text: " ".join(text.split())
)
NAMES = st.sampled_from(["x-amz-meta-a", "x-amz-acl", "range", "content-md5", "if-match", "x-b"])


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    key=WORDS,
    query=st.dictionaries(WORDS, WORDS, max_size=4),
    headers=st.dictionaries(NAMES, VALUES, max_size=4),
    token=st.sampled_from(["", "session/token+1="]),
    sha256=st.sampled_from(["UNSIGNED-PAYLOAD", "ab" * 32]),
)
def test_a_signature_is_that_of_botocore(method, key, query, headers, token, sha256):
    path, text = encoded_path(f"/bucket/{key}"), encoded_query(query)
    keys = Keys("AKEXAMPLE", "secret+/key", token)
    sent = {"host": "127.0.0.1:9000", **headers}
    ours = signed(method, path, text, sent, sha256, keys, "eu-west-1", now=MOMENT)
    request = AWSRequest(method, f"http://127.0.0.1:9000{path}?{text}", headers=dict(headers))
    request.headers["X-Amz-Content-SHA256"] = sha256
    signer = S3SigV4Auth(
        Credentials(keys.access_key, keys.secret_key, token or None), "s3", "eu-west-1"
    )
    fixed = datetime.datetime.fromtimestamp(MOMENT, datetime.UTC).replace(tzinfo=None)
    with (
        mock.patch("botocore.auth.get_current_datetime", return_value=fixed),
        mock.patch.object(signer, "payload", return_value=sha256),
    ):
        signer.add_auth(request)
    assert ours["authorization"] == request.headers["Authorization"]
    assert repr(keys) == "Keys(...)"
