"""A running server as an environment: its pages read as the project's own shop writes them, and sessions behave
alike."""

import pytest

pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
from r3l.config.environments import WebShopSettings
from r3l.environments import make_world
from r3l.environments.webshop.html import read_page
from r3l.environments.webshop.nouns import title_words
from r3l.environments.webshop.session import Shop
from r3l.environments.webshop.world import WebShopEnvironment
from r3l.errors import ServerAway, WorldError
from tests.support.webshop_site import serving
from tests.unit.test_webshop import CUP, GOAL, MANY, MUG, OPEN, PURCHASE, SEARCH, task

WALKS = {
    "purchase": PURCHASE,
    "losing": ("search[cup]", "click[b00000cup2]", "click[Features]", "click[< Prev]", "click[buy now]"),
    "pages": (
        "search[lamp]",
        "click[Next >]",
        "click[B0000LAMPK]",
        "click[< Prev]",
        "click[< prev]",
        "click[next >]",
        "click[Next >]",
    ),
    "forgetting": (
        SEARCH,
        OPEN,
        "click[black]",
        "click[< Prev]",
        OPEN,
        "click[Back to Search]",
        SEARCH,
        OPEN,
        "search[cup]",
    ),
    "refused": ("click[Buy Now]", "click[Search]", "dance", "search[]", SEARCH, "click[B0000LAMPA]", "click[Reviews]"),
}


@pytest.fixture(scope="module")
def shop():
    return Shop([MUG, CUP, *MANY], [GOAL], title_words)


@pytest.fixture(scope="module")
def address(shop):
    with serving(shop) as address:
        yield address


@pytest.mark.parametrize("mode", ["rich", "plain"])
@pytest.mark.parametrize("walk", WALKS)
def test_the_site_and_the_shop_read_alike(shop, address, walk, mode):
    """Two ways to a page's text: from HTML laid out as the original's, and straight from the shop."""
    own = WebShopEnvironment(shop, WebShopSettings(text_mode=mode))
    remote = make_world(WebShopSettings(catalogue=address, text_mode=mode)).make()
    assert remote.reset(task()) == own.reset(task())
    for action in WALKS[walk]:
        expected = own.step(action)
        assert remote.step(action) == expected, action
    remote.close()


def test_the_last_page_shows_nothing_of_the_goal(address):
    remote = make_world(WebShopSettings(catalogue=address)).make()
    remote.reset(task())
    texts = [remote.step(action).observation.text for action in PURCHASE]
    assert "SECRET" not in texts[-1]
    assert "1A2B3C" not in texts[-1]
    with pytest.raises(WorldError, match="step after the purchase"):
        remote.step(SEARCH)


def test_going_back_is_exact(address):
    remote = make_world(WebShopSettings(catalogue=address)).make()
    remote.reset(task())
    handles, seen = [], []
    for action in PURCHASE:
        handles.append(remote.snapshot())
        seen.append(remote.step(action))
    for turn in reversed(range(len(PURCHASE))):
        remote.restore(handles[turn])
        assert remote.step(PURCHASE[turn]) == seen[turn]
    with pytest.raises(WorldError, match="restore needs a handle"):
        remote.restore(None)


def test_tasks_of_a_server_are_split_by_its_number_of_goals():
    world = make_world(WebShopSettings(catalogue="http://127.0.0.1:1", server_goals=4500))
    assert (len(world.tasks("train")), len(world.tasks("heldout"))) == (4096, 100)
    assert world.tasks("train")[0].task_type == "shopping"
    with pytest.raises(
        ServerAway, match=r"WebShop server http://127.0.0.1:1: .*; is `python -m web_agent_site.app` running there\?"
    ):
        world.make().reset(task())


def test_an_error_of_the_server_is_an_error_here(address):
    remote = make_world(WebShopSettings(catalogue=address)).make()
    with pytest.raises(WorldError, match=r"500 Internal Server Error"):
        remote.reset(task(99))


def test_links_to_other_sites_are_not_followed(address):
    remote = make_world(WebShopSettings(catalogue=address)).make()
    with pytest.raises(WorldError, match=r"links to another site \(http://127.0.0.1.example/x\): not followed"):
        remote.fetch("GET", "http://127.0.0.1.example/x")


def test_html_is_read_as_the_original_reads_it():
    """A comment and a break part strings; blank lines vanish, other blanks are one space; misnested tags do no harm."""
    page = (
        "<html><head><title>no</title></head><body>\n<h4>a &amp; b<br>c</h5>\n<p>  </p><!-- x -->d<style>.e{}</style>"
        '<form action="/go" method="post"><div><button class="btn"><i></i>Go</button></div></form></body></html>'
    )
    found = read_page(page)
    assert [(element.piece.text, element.piece.kind) for element in found] == [
        ("a & b", "text"),
        ("c", "text"),
        (" ", "text"),
        ("d", "text"),
        ("Go", "button"),
    ]
    assert (found[-1].address, found[-1].method) == ("/go", "POST")
