"""The audit page on an address that other machines reach: a key, names, and nothing without them."""

import base64

import pytest
from fastapi.testclient import TestClient

from r3l.audit.web.access import key_for
from r3l.audit.web.app import make_app
from r3l.errors import ConfigError
from r3l.store.stage import Store

KEY = "a-key-of-twenty-four-let"
PATHS = ["/", "/sql?q=SELECT+1", "/compare", "/static/audit.css", "/nope"]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    app = make_app(Store.open(str(tmp_path_factory.mktemp("store"))), names=["audit.example.org"], key=KEY)
    with TestClient(app, base_url="https://audit.example.org") as found:
        yield found
    app.state.audit.close()


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_key(client, path):
    refused = client.get(path)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="r3l audit"')
    assert KEY not in refused.text
    assert client.get(path, headers=basic(f"anybody:{KEY}")).status_code == (404 if path == "/nope" else 200)


@pytest.mark.parametrize("header", [
    basic("anybody:"), basic(KEY), basic(f"anybody:{KEY}x"), basic(f"anybody:{KEY[:-1]}"),
    {"Authorization": f"Bearer {KEY}"}, {"Authorization": "Basic not-base-64"}, {"Authorization": "Basic"},
])  # fmt: skip
def test_what_is_not_the_key_is_refused(client, header):
    assert client.get("/", headers=header).status_code == 401


def test_a_probe_needs_no_key_and_learns_nothing(client):
    answer = client.get("/health")
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_foreign_name_is_refused_with_the_key_too(client):
    assert client.get("/", headers=basic(f"x:{KEY}") | {"host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("host", "key", "expected"),
    [("127.0.0.1", "", ""), ("localhost", "", ""), ("::1", "", ""), ("127.0.0.1", KEY, KEY), ("0.0.0.0", KEY, KEY)],
)
def test_loopback_alone_does_without_a_key(monkeypatch, host, key, expected):
    monkeypatch.setenv("R3L_AUDIT_KEY", key)
    assert key_for(host) == expected


@pytest.mark.parametrize(
    ("host", "key"), [("0.0.0.0", ""), ("10.0.0.7", ""), ("::", ""), ("audit", ""), ("0.0.0.0", "short")]
)
def test_another_address_without_a_key_is_refused_before_it_listens(monkeypatch, host, key):
    monkeypatch.setenv("R3L_AUDIT_KEY", key)
    with pytest.raises(ConfigError, match=rf"R3L_AUDIT_KEY has {len(key)} characters"):
        key_for(host)
