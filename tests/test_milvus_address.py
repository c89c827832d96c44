"""Addresses of Milvus: what is one, and which of those in a model may be connected to."""

from __future__ import annotations

from pathlib import Path

import pytest

from lnbnn.errors import InvalidInputError, LnbnnError, ModelFormatError
from lnbnn.indexes.milvus_address import check_uri, full_uri, trusted_uri

MODEL = Path("model")


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.delenv("LNBNN_MILVUS_URI", raising=False)
    return monkeypatch


@pytest.mark.parametrize("uri", ["http://a:19530", "https://a.example/x", "http://[::1]:1", "vectors.db", "/a/b.db"])
def test_addresses(uri):
    assert check_uri(uri) == uri


@pytest.mark.parametrize(
    "uri",
    ["", ".db", "vectors", "ftp://host/x.db", "http://", "http://[::1", "http://a:port", "http://a:99999", 3, None],
)
def test_what_is_no_address_is_one_line(uri):
    with pytest.raises(InvalidInputError, match=r"uri must be a file .*; got") as told:
        check_uri(uri)
    assert "\n" not in str(told.value)
    if isinstance(uri, str):
        with pytest.raises(ModelFormatError, match=r"^model: uri must be"):
            trusted_uri(uri, MODEL)


@pytest.mark.parametrize(
    "uri", ["http://localhost:1", "http://127.0.0.1:1", "http://127.3.2.1", "http://[::1]:1", "https://LOCALHOST:1"]
)
def test_this_machine_is_trusted(uri):
    assert trusted_uri(uri, MODEL) == uri


@pytest.mark.parametrize(
    "host",
    [
        "127.evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "localhost@evil.example",
        "2130706433",
        "127.1",
        "0.0.0.0",
        "10.0.0.1",
        "[::2]",
        "vectors.example",
    ],
)
def test_a_stranger_is_not(host, environment):
    uri = f"http://{host}:19530"
    with pytest.raises(LnbnnError, match="to allow the connection, set LNBNN_MILVUS_URI=http"):
        trusted_uri(uri, MODEL)
    environment.setenv("LNBNN_MILVUS_URI", uri)
    assert trusted_uri("http://127.0.0.1:1", MODEL) == uri == full_uri("vectors.db")


def test_a_wrong_address_in_the_environment_is_one_line(environment):
    environment.setenv("LNBNN_MILVUS_URI", "http://[::1")
    with pytest.raises(InvalidInputError, match=r"got 'http://\[::1'"):
        trusted_uri("vectors.db", MODEL)


def test_files(tmp_path, environment):
    environment.chdir(tmp_path)
    assert full_uri("vectors.db") == str(tmp_path / "vectors.db")
    with pytest.raises(ModelFormatError, match=r"vectors\.db, which is missing"):
        trusted_uri(str(tmp_path / "vectors.db"), MODEL)
    (tmp_path / "vectors.db").mkdir()
    assert trusted_uri(str(tmp_path / "vectors.db"), MODEL) == str(tmp_path / "vectors.db")
