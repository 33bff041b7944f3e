"""Messages about Prefect's configuration never show a password, a key or secrets in URLs."""

import os
import traceback
from unittest import mock

import pytest

from flows.runs import run_page
from flows.runs.configure import configure_prefect
from flows.runs.secrets import Hidden, auth_of, without_auth
from larder.cli.exit import DEBUG
from larder.errors import FatalError, LarderError, ObjectError
from tests.support.errors import larder_error

SECRET = "canary0987654321"


@pytest.mark.parametrize(
    ("url", "plain", "auth"),
    [
        ("", "", ""),
        ("http://127.0.0.1:4200/api", "http://127.0.0.1:4200/api", ""),
        ("https://me:pw@host/api", "https://host/api", "me:pw"),
        ("http://me:p%40ss@host:80/api", "http://host:80/api", "me:p@ss"),
        ("http://me:p@ss@[::1]:80/api", "http://[::1]:80/api", "me:p@ss"),
        ("https://token@host/api", "https://host/api", "token"),
    ],
)
def test_a_password_is_removed_from_a_url(url, plain, auth):
    assert auth_of(url, where="X") == (plain, auth)


@pytest.mark.parametrize(
    "url",
    [
        f"me:{SECRET}@host/api",
        f"ftp://me:{SECRET}@host/api",
        f"http://me:{SECRET}/x@host/api",
        f"http://me:{SECRET}@",
        f"http://me:{SECRET}@host:99999/api",
        f"http://me:{SECRET}@[::1/api",
        SECRET,
    ],
)
def test_an_invalid_server_url_is_refused_and_not_shown(url):
    with (
        mock.patch.dict(os.environ, PREFECT_API_URL=url),
        larder_error("config.invalid_value") as raised,
    ):
        configure_prefect()
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_prefect_gets_the_password_separately_from_the_url(tmp_path, monkeypatch):
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    (tmp_path / "profiles.toml").write_text(
        f'active = "x"\n[profiles.x]\nPREFECT_API_URL = "http://me:{SECRET}@host/api"\n'
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    with mock.patch.dict(os.environ, {**clean, "PREFECT_HOME": str(tmp_path)}, clear=True):
        hidden = configure_prefect()
        assert os.environ["PREFECT_API_URL"] == "http://host/api"
        assert os.environ["PREFECT_API_AUTH_STRING"] == f"me:{SECRET}"
    assert hidden(f"with {SECRET}") == "with ***"


def test_urls_keep_what_is_not_secret():
    text = f"for 'http://me:{SECRET}@host:80/api/x?key={SECRET}#{SECRET}' and s3://bucket/a"
    assert without_auth(text) == "for 'http://host:80/api/x' and s3://bucket/a"


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        f"http://other:{SECRET}x@host",
        "Basic bWU6Y2FuYXJ5MDk4NzY1NDMyMQ==",  # base64 of me:canary...
    ],
)
def test_an_error_that_shows_a_secret_becomes_one_that_does_not(shown):
    with larder_error("run.server") as raised, Hidden([f"me:{SECRET}"]).guard():
        raise ValueError(f"refused: {shown}")
    everything = "".join(traceback.format_exception(raised.value))
    assert SECRET not in everything
    assert "bWU6" not in everything


def test_an_error_of_larder_stays_without_the_cause_that_shows_a_secret():
    with pytest.raises(LarderError) as raised, Hidden([SECRET]).guard():
        raise FatalError("run.server", "refused") from ValueError(SECRET)
    assert str(raised.value) == "refused"
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_an_error_about_an_object_is_unchanged():
    where = "s3://bucket/train/a@2x.jpg?version=1"
    with pytest.raises(ObjectError) as raised, Hidden([SECRET]).guard():
        raise ObjectError("object.missing", "it is gone", where=where)
    assert str(raised.value) == f"{where}: it is gone"


def test_other_errors_and_their_causes_are_unchanged():
    cause = ValueError("no secret")
    with pytest.raises(FatalError) as raised, Hidden([SECRET, "", "abc"]).guard():
        raise FatalError("run.server", "abc refused") from cause
    assert raised.value.__cause__ is cause


def test_the_traceback_of_a_bug_is_logged_without_the_credentials_of_urls(monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(run_page.RunLog, "__init__", lambda _: None)
    monkeypatch.setattr(run_page.RunLog, "write", lambda _, level, line: lines.append(line))
    monkeypatch.setenv(DEBUG, "1")  # the loggers of other tests stay as they are
    error = ValueError("no answer of https://user:s3cr3t@host/a?X-Amz-Signature=5ign")
    assert run_page.log_end(FatalError("run.internal", "a bug"), error) == lines[-1]
    assert "no answer of https://host/a" in lines[0]
    assert "s3cr3t" not in "".join(lines)
    assert "5ign" not in "".join(lines)
