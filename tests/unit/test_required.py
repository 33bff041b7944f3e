"""What a machine lacks skips a test, but never in CI."""

import pytest
import required


def test_what_is_missing_fails_where_everything_is_required(monkeypatch):
    monkeypatch.delenv("LARDER_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such thing"):
        required.missing("no such thing")
    monkeypatch.setenv("LARDER_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match="no such thing"):
        required.missing("no such thing")
