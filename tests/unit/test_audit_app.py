import html
import re
from html.parser import HTMLParser
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from r3l.audit.web.app import QUESTIONS, make_app
from r3l.audit.web.sandbox import Answer, SqlBox
from r3l.audit.web.store_routes import compared_figures
from r3l.store.metrics import FOLLOWED
from r3l.store.stage import Store
from tests.support.audit_world import HOSTILE, World, commit, commit_world

PAGES = {
    "/": "Runs and branches", "/run/demo": "Improvement rate",
    "/run/demo?at=0": "Iteration 0: optimiser step and stages", "/run/demo?branch=bold": "/ bold",
    "/run/demo/groups": "6 groups", "/run/demo/groups?iteration=0&sort=base_reward&down=0": "3 groups",
    "/run/demo/groups?iteration=x&text=nothing+like+it": "No group matches",
    "/run/demo/group?id=iteration%3D1/task%3D0&iteration=1": "base=0", "/run/demo/reflections": "Claims of reflections",
    "/run/demo/reflections?iteration=1": "solved, pivot agrees",
    "/run/demo/reflections?iteration=0&fault=saw+no+fault": "saw no fault", "/run/demo/account": "unaccounted for",
    "/run/demo/account?stage=reflections&event=skipped&reason=outcome+is+success": "outcome is success",
    "/compare": "Choose two", "/compare?line=demo&line=demo/bold": "what bold changed",
    "/compare?line=demo/bold&line=demo": "they part in iteration 1, credit",
    "/words": "standard deviation of the group", "/sql": "Worked questions", "/sql?q=SELECT+42+AS+answer": "42",
}  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    store = Store.open(str(tmp_path_factory.mktemp("store")))
    commit_world(store, iterations=2, tasks=3, hostile=True)
    branch = {
        stage: rows
        for stage, rows in World(1, 3, top=5.0).tables().items()
        if stage in ("credit", "training_rows", "updates")
    }
    commit(store, "demo", 1, branch, branch="bold", settings={"alpha": 5.0})
    app = make_app(store)
    with TestClient(app, base_url="http://127.0.0.1:4300") as found:
        yield found
    app.state.audit.close()


class Elements(HTMLParser):
    """The elements of a page with their attributes: what a browser would act on."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def assert_harmless(page: str) -> None:
    for tag, attributes in Elements(page).found:
        assert tag not in {"img", "iframe", "object", "embed"}
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        if tag == "script":
            assert attributes == {"src": "/static/audit.js", "defer": None}
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@pytest.fixture(scope="module")
def pages(client):
    """Every page, asked for once."""
    return {path: client.get(path) for path in PAGES}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_shown_under_its_policy(pages, path):
    answer = pages[path]
    assert answer.status_code == 200
    assert PAGES[path] in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert (answer.headers["x-content-type-options"], answer.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert_harmless(answer.text)


def test_each_word_is_explained_once_and_headers_link_to_theirs(client, pages):
    told = re.findall(r'<div id="(\w+)"><dt>(.*?)</dt><dd>(.*?)</dd>', pages["/words"].text)
    assert len({word for word, _, _ in told}) == len({name for _, name, _ in told}) == len(told) > 30
    meanings = {f"/words#{word}": html.unescape(meaning) for word, _, meaning in told}
    tokens = f"/run/demo/tokens?source={quote('iteration=0/task=0/base=0', safe='')}&iteration=0"
    linked = set()
    for path, answer in {**pages, tokens: client.get(tokens)}.items():
        elements = Elements(answer.text).found
        terms = [attributes for _, attributes in elements if attributes.get("class") == "term"]
        assert all(meanings[one["href"]] == one["title"] for one in terms), path
        linked |= {one["href"].removeprefix("/words#") for one in terms}
    assert linked >= {"slot", "std", "mixed", "advantage", "scaled", "weight", "pull", "pivot", "gain", "kl"}


@pytest.mark.slow
def test_every_link_of_every_page_leads_somewhere(client):
    seen, todo = (
        set(),
        ["/", "/run/demo/group?id=iteration%3D0/task%3D0&iteration=0&attempt=iteration%3D0/task%3D0/base%3D0"],
    )
    while todo and len(seen) < 120:
        path = todo.pop()
        kind = re.sub(r"\d+", "0", path)
        if kind in seen:
            continue
        seen.add(kind)
        answer = client.get(path)
        assert answer.status_code == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            todo += [
                target
                for tag, found in Elements(answer.text).found
                if tag == "a" and (target := found.get("href")) and target.startswith("/")
            ]
    assert {"/run/demo/tokens", "/run/demo/group", "/run/demo/text", "/run/demo/open"} <= {
        path.split("?")[0] for path in seen
    }


def test_hostile_text_is_text_on_every_page_that_has_it(client):
    group = client.get(
        "/run/demo/group?id=iteration%3D0/task%3D0&iteration=0&attempt=iteration%3D0/task%3D0/base%3D0"
    ).text
    assert "&lt;script&gt;window.harmed = true&lt;/script&gt;" in group
    assert "⟨U+001B⟩[2J" in group
    assert "⟨U+202E⟩gnp.exe" in group
    assert "{{ 7 * 7 }}" in group
    assert len(group) < 100_000
    answered = client.get("/sql?q=" + quote("SELECT response, run FROM turns WHERE length(response) > 9000")).text
    assert f"({len(HOSTILE):,} characters)" in answered
    for page in (group, answered, client.get("/run/demo/reflections").text):
        assert_harmless(page)


def test_the_whole_text_is_plain_text_in_a_sandbox(client):
    answer = client.get("/run/demo/text?id=iteration%3D0/task%3D0/base%3D0&part=response&turn=1")
    assert answer.text == HOSTILE
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(("path", "status", "said"), [
    ("/run/nope", 404, "it has demo, demo/bold"), ("/run/%00", 404, "letters, digits"),
    ("/run/demo%00/groups", 404, "letters, digits"), ("/run/demo?branch=%00", 404, "letters, digits"),
    (f"/run/{'a' * 5_000}", 404, "letters, digits"), (f"/run/{'a' * 5_000}/account", 404, "letters, digits"),
    (f"/compare?line={'a' * 300}", 404, "letters, digits"), ("/compare?line=%00", 404, "letters, digits"),
    ("/nope", 404, "no such page"), ("/static/../app.py", 404, ""), ("/static/app.py", 404, ""),
    ("/run/demo/group?id=iteration%3D9/task%3D9&iteration=9", 404, "not in demo"),
    ("/run/demo/group?id=x&iteration=%3Cb%3E", 422, "iteration"),
    ("/run/demo/open?id=%3Cscript%3E", 404, "&lt;script&gt;"), ("/run/demo/groups?page=-1", 422, "page"),
    ("/sql?q=DROP+TABLE+stages", 400, "one SELECT is expected"), ("/run/demo?branch=nope", 404, "demo/nope"),
    ("/compare?line=demo&line=%3Cimg%3E", 404, "&lt;img&gt;"),
    ("/run/demo/tokens?source=x&iteration=0", 404, "no training row"),
])  # fmt: skip
def test_what_is_wrong_is_said(client, path, status, said):
    answer = client.get(path)
    assert (answer.status_code, said in answer.text) == (status, True)
    assert_harmless(answer.text)


ODD = ("%00", "a" * 5_000, "..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "{{7*7}}", "%ff%fe", "9" * 400, "💥")
PLACES = ("/run/{}/groups", "/run/demo?branch={}", "/compare?line={}", "/run/demo/group?id={}&iteration=0")


@pytest.mark.parametrize("place", [*PLACES, "/static/{}", "/run/demo/groups?page={}", "/sql?run={}&q=SELECT+1", "/{}"])
def test_a_link_that_nobody_makes_by_hand_is_no_fault_of_the_server(client, place):
    for odd in ODD:
        answer = client.get(place.format(odd))
        assert answer.status_code in (200, 400, 404, 422), odd
        assert_harmless(answer.text)


def test_it_answers_to_this_machine_only_and_only_reads(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"host": "localhost:4300"}).status_code == 200
    assert {client.request(method, "/").status_code for method in ("POST", "PUT", "DELETE")} == {405}
    assert client.get("/openapi.json").status_code == 404


def test_an_empty_store_says_what_to_do(tmp_path):
    app = make_app(Store.open(str(tmp_path)))
    with TestClient(app, base_url="http://localhost") as client:
        assert "r3l iterate" in client.get("/").text
    app.state.audit.close()


def test_the_worked_questions_can_all_be_asked(client, pages):
    asked = [
        target
        for tag, found in Elements(pages["/sql"].text).found
        if tag == "a" and "q=" in (target := found.get("href") or "")
    ]
    assert len(asked) == len(list(QUESTIONS.glob("*.sql"))) > 0
    assert {client.get(path).status_code for path in asked} == {200}


CROSS = {"sec-fetch-site": "cross-site"}


@pytest.mark.parametrize(("path", "headers", "status"), [
    ("/sql?q=SELECT+42", CROSS | {"sec-fetch-mode": "navigate"}, 403),
    ("/sql?q=SELECT+42", CROSS | {"sec-fetch-mode": "no-cors"}, 403),
    (
        "/sql?q=SELECT+42",
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"},
        403,
    ),  # another server of this machine
    ("/sql?q=SELECT+42", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}, 200),
    ("/sql?q=SELECT+42", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"}, 200),  # typed, or a bookmark
    ("/sql", CROSS | {"sec-fetch-mode": "navigate"}, 200),
    ("/run/demo", CROSS | {"sec-fetch-mode": "navigate"}, 200),
    ("/run/demo", CROSS | {"sec-fetch-mode": "cors"}, 403),
    ("/run/demo", {"origin": "https://evil.example"}, 403),
])  # fmt: skip
def test_a_page_of_another_site_links_and_asks_nothing(client, monkeypatch, path, headers, status):
    asked = []
    monkeypatch.setattr(SqlBox, "ask", lambda _, query: asked.append(query) or Answer(["a"], [(42,)], False, 0.0))
    answer = client.get(path, headers=headers)
    assert answer.status_code == status
    assert asked == (["SELECT 42"] if status == 200 and "q=" in path else [])
    if status == 403 and headers.get("sec-fetch-mode") == "navigate":
        assert "SELECT 42" in answer.text  # in the box, to be read and run
        assert "another site" in answer.text


def test_figures_that_differ_come_first_and_those_that_none_has_not_at_all():
    one = {metric.column: None for metric in FOLLOWED}
    one |= {"loss": 0.5, "base_reward": 0.2, "canary_error": float("nan")}
    assert [metric.column for metric in compared_figures([one, one | {"loss": 0.25}])] == ["loss", "base_reward"]


@pytest.mark.slow
def test_sql_is_asked_of_every_run_of_one_or_of_a_branch(client):
    asked = quote("SELECT any_value(branch) AS branch, max(advantage)::INTEGER AS most FROM credit")
    for line, shown in (("demo", ">3<"), ("demo/bold", ">5<")):
        assert shown in client.get(f"/sql?run={quote(line, safe='')}&q={asked}").text
    assert client.get(f"/sql/answer.csv?run=demo/bold&q={asked}").text.split() == ["branch,most", "bold,5"]
    assert client.get(f"/sql?run=nope&q={asked}").status_code == 400
    assert client.get(f"/sql/answer.parquet?q={asked}").content[:4] == b"PAR1"
    assert client.get("/sql/answer.exe?q=SELECT+1").status_code == 422


def test_the_link_keeps_the_axes_and_a_download_cuts_nothing(client):
    long = "repeat('x', 5000 * (range = 1199)::INTEGER)"
    asked = f"SELECT range AS n, range * 2 AS twice, 'r' || range % 2 AS kind, {long} AS long FROM range(1200)"
    axes = "x=kind&y=n&y=twice&by=-"
    page = client.get(f"/sql?q={quote(asked)}&{axes}").text
    links = [str(attributes.get("href")) for tag, attributes in Elements(page).found if tag == "a"]
    assert [link for link in links if link.startswith("/sql?q=") and link.endswith(axes)]
    assert 'aria-label="n, twice by kind: r0 n 499; r0 twice 998; r1 n 500; r1 twice 1,000"' in page
    assert "1,000 rows, and more" in page
    lines = client.get("/sql/answer.csv", params={"q": asked}).text.splitlines()
    assert (len(lines), lines[-1]) == (1201, f"1199,2398,r1,{'x' * 5000}")
