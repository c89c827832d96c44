"""The connection to a Ray cluster: errors in one line, nothing sent anywhere. test_ray.py connects to real ones."""

from __future__ import annotations

import os
import socket
import sys

import pytest

from lnbnn.cluster import connection
from lnbnn.errors import LnbnnError, MissingExtraError


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'lnbnn\[ray\]'"):
        connection.connect("local")
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.parametrize("given", [{}, {"RAY_AUTH_MODE": "disabled"}])
def test_a_local_cluster_has_a_token_of_its_own(monkeypatch, given):
    for name in connection._TOKENS:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setattr("builtins.__import__", refuse_ray(__import__))
    with pytest.raises(MissingExtraError):
        connection.connect("local")
    assert len(os.environ.get("RAY_AUTH_TOKEN", "")) == (0 if given else 64)


def refuse_ray(real):
    def find(name, *args, **kwargs):
        if name == "ray":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    return find


def test_a_port_where_nothing_listens_is_one_line():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    with pytest.raises(LnbnnError, match=rf"no Ray cluster answers at 127\.0\.0\.1:{port} \(.*\); start one with"):
        connection._check_reachable(f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["auto", "local"])
def test_names_are_not_looked_for_on_the_network(address, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", None)
    connection._check_reachable(address)


def test_refusals_say_what_to_do():
    assert "start or join one with ray start" in connection._refusal("auto", ConnectionError("none"))
    assert "RAY_AUTH_TOKEN" in connection._refusal("a:1", RuntimeError("RPC error: Unauthenticated: no token"))
    assert connection._refusal("a:1", ValueError("first\nsecond")).endswith("cannot be used (first).")


def test_first_line_is_never_empty():
    assert connection.first_line(ValueError("\n  one\ntwo")) == "one"
    assert connection.first_line(ValueError("")) == "ValueError"


def test_disconnecting_without_a_connection_does_nothing():
    connection.disconnect()


def test_no_cluster_on_this_machine_is_said():
    assert "no Ray cluster runs on this machine" in connection._refusal("auto", ConnectionError("Could not find any"))
    assert "RAY_AUTH_TOKEN" in connection._refusal("127.0.0.1:1", RuntimeError("Failed to connect to Ray cluster"))
