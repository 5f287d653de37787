"""WebShop episodes on the project's own shop: both text modes, winning, losing, going back, the actions of every
page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("thefuzz", reason="the extra [webshop] is not installed")
from r3l.config.environments import WebShopSettings
from r3l.environments.kinds import make_world
from r3l.environments.webshop.catalogue import Goal, Product, Review
from r3l.environments.webshop.nouns import title_words
from r3l.environments.webshop.session import Shop, parse_action
from r3l.environments.webshop.world import WebShopEnvironment, WebShopWorld
from r3l.environments.workers.sessions import Sessions
from r3l.errors import WorldError
from r3l.records import Task

GOLDEN = Path(__file__).parents[1] / "golden/webshop"
MUG = Product(
    asin="B00000MUG1", title="Alora Leak Proof Mug, Gift Idea", category="garden", query="mugs",
    product_category="Home › Kitchen › Mugs", description="The mug by Alora <3 & more.",
    bullets=("Dishwasher safe.", 'Holds 12" of tea.'), price=14.5, price_text="$14.5",
    attributes=("leak proof", "dishwasher safe"), options={"color": ("black", "wine red"), "size": ('12"', "small")},
    rating="4.5", reviews=(Review("Fine", "4", "It's a mug."), Review("", "2", "")),
)  # fmt: skip
CUP = Product(
    asin="B00000CUP2", title="Beren Cup", category="garden", query="cups", product_category="Home › Kitchen › Cups",
    description="", bullets=("A mug for less.",), price=30.0, price_text="$25.0 to $35.0", attributes=("DUMMY_ATTR",),
)  # fmt: skip
LAMP = replace(CUP, query="lamps", product_category="Home › Lamps", bullets=("Light.",), price=5.0, price_text="$5.0")
MANY = [replace(LAMP, asin=f"B0000LAMP{n}", title=f"Lamp {n}") for n in "ABCDEFGHIJK"]
GOAL = Goal(
    MUG,
    "Find me leak proof mugs with color: wine red, and price lower than 20.00 dollars",
    ("leak proof",),
    20.0,
    (("color", "wine red"),),
)
SEARCH, OPEN = "search[mug]", "click[B00000MUG1]"


def task(goal: int = 0) -> Task:
    return Task(0, 0, f"webshop/train/{goal:05d}", "webshop", "train", "garden", json.dumps({"goal": goal}), 0)


@pytest.fixture
def shop():
    return Shop([MUG, CUP, *MANY], [GOAL], title_words)


@pytest.fixture
def play(shop):
    def run(*actions, **settings):
        environment = WebShopEnvironment(shop, WebShopSettings(**settings))
        texts = [environment.reset(task()).text]
        steps = [environment.step(action) for action in actions]
        return environment, [*texts, *(step.observation.text for step in steps)], steps

    return run


def test_a_product_without_reviews_has_a_page_with_nothing_on_it(play):
    _, texts, _ = play(SEARCH, "click[B00000CUP2]", "click[Reviews]", text_mode="plain")
    assert texts[-1] == f"Instruction: [SEP] {GOAL.instruction} [SEP] Back to Search [SEP] < Prev"


PURCHASE = (
    SEARCH, OPEN, "click[wine red]", "click[Features]", "click[< Prev]", 'click[12"]', "click[description]",
    "click[< prev]", "click[Reviews]", "click[< Prev]", "click[Buy Now]",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["rich", "plain"])
def test_pages_read_as_the_original_writes_them(play, mode):
    """Every page of a purchase. The golden files follow the original's templates and its two ways to text."""
    _, texts, _ = play(*PURCHASE, text_mode=mode)
    shown = "\n=====\n".join(f"> {action}\n{text}" for action, text in zip(("", *PURCHASE), texts, strict=True))
    assert shown == (GOLDEN / f"purchase_{mode}.txt").read_text()


def test_a_right_purchase_has_reward_1(play):
    _, _, steps = play(*PURCHASE)
    assert all(step.accepted for step in steps)
    assert [step.done for step in steps] == [False] * 10 + [True]
    assert (steps[-1].reward, steps[-1].success) == (1.0, True)
    assert all((step.reward, step.standing, step.progress) == (0.0, 0.0, None) for step in steps[:-1])


def test_a_purchase_of_another_kind_has_reward_0(play):
    """The cup: its only title word but the maker, cup, is not among alora, leak, proof, mug, gift, idea: the factor is
    0."""
    _, texts, steps = play("search[cup]", "click[b00000cup2]", "click[buy now]")
    assert (steps[-1].done, steps[-1].reward, steps[-1].success) == (True, 0.0, False)
    assert "Your score (min 0.0, max 1.0)\n0.0\n" in texts[-1]


def test_a_partly_right_purchase_has_a_part_of_the_reward(play):
    """The attribute and the price fit, the color does not: 2 of 3."""
    _, _, steps = play(SEARCH, OPEN, "click[black]", "click[buy now]")
    assert (steps[-1].reward, steps[-1].success) == (pytest.approx(2 / 3), False)


def test_the_last_choice_of_an_option_counts(play):
    environment, texts, _ = play(SEARCH, OPEN, "click[black]", "click[wine red]", "click[small]")
    assert environment.state.options == (("color", "wine red"), ("size", "small"))
    assert texts[-1].startswith("You have clicked small.\nYou have clicked wine red.\nInstruction:")


def test_leaving_an_item_forgets_what_was_chosen_there(play):
    environment, texts, _ = play(SEARCH, OPEN, "click[black]", "click[< Prev]")
    assert environment.state.options == ()
    assert "\n[clicked button] B00000MUG1 [clicked button_]\n" in texts[-1]
    _, texts, _ = play(SEARCH, OPEN, "click[Back to Search]", SEARCH)
    assert "\n[button] B00000MUG1 [button_]\n" in texts[-1], "back at the search page, visits are forgotten too"
    _, texts, _ = play(SEARCH, OPEN, SEARCH)
    assert "\n[clicked button] B00000MUG1 [clicked button_]\n" in texts[-1], "a search from elsewhere keeps them"


def test_results_come_in_pages_of_ten(play):
    """Eleven lamps: ten and one, and a third page without any, as the original has it."""
    _, texts, steps = play("search[lamp]", "click[Next >]", "click[next >]", "click[< Prev]")
    assert [step.accepted for step in steps] == [True] * 4
    assert "Page 1 (Total results: 11)\n[button] Next > [button_]\n" in texts[1]
    assert texts[1].count("Lamp ") == 10
    assert texts[2].endswith("[button] B0000LAMPK [button_]\nLamp K\n$5.0\n")
    assert texts[3].endswith("Page 3 (Total results: 11)\n[button] < Prev [button_]\n[button] Next > [button_]\n")
    assert texts[4] == texts[2]


def test_the_page_of_results_is_kept_while_an_item_is_open(play):
    _, texts, _ = play("search[lamp]", "click[Next >]", "click[B0000LAMPK]", "click[< Prev]")
    assert texts[-1].startswith("Instruction:")
    assert "Page 2 (Total results: 11)" in texts[-1]


@pytest.mark.parametrize("action", [
    "", "mug", "search[]", "look around", "click[B00000MUG1]", "click[Search]", "click[]", "Click[Next >]",
    "buy[mug]", "click[next]",
])  # fmt: skip
def test_what_can_not_be_done_shows_the_same_page_again(play, action):
    environment, texts, steps = play(action)
    assert not steps[0].accepted
    assert not steps[0].done
    assert texts[1] == texts[0]
    assert environment.state.page == "search"


def test_the_released_rule_says_why_and_lists_the_buttons(play):
    _, texts, steps = play("click[Buy Now]", SEARCH, "search[cup]", OPEN, "click[green]", action_rule="released")
    assert [step.accepted for step in steps] == [False, True, False, True, False]
    assert texts[1] == "This can't be done on this page. Buttons to click: none, use search[...]."
    assert texts[3] == "There is no search bar on this page: click Back to Search first."
    assert texts[5] == (
        "This can't be done on this page. Buttons to click: [back to search], [< prev], [description], [features], "
        '[reviews], [buy now], [black], [wine red], [12"], [small].'
    )


@pytest.mark.parametrize(("action", "expected"), [
    ("search[Red Shoe]", ("search", "red shoe")),
    ("click[Buy Now] please", ("click", "buy now")),
    ("click[a] click[b]", ("click[a] click", "b")),
    ("search[]", ("", "")),
    ("search", ("", "")),
])  # fmt: skip
def test_actions_are_read_by_the_originals_pattern(action, expected):
    assert parse_action(action) == expected


def test_going_back_to_every_turn_sees_the_same_and_goes_on_the_same(shop, play):
    """By snapshots and by taking the actions again."""
    _, seen, steps = play(*PURCHASE)

    class World(WebShopWorld):
        def make(self):
            return WebShopEnvironment(shop, self.settings)

    for remember in (True, False):
        sessions = Sessions(World(WebShopSettings()))
        if remember:
            sessions.start("base", task())
            for action in PURCHASE:
                sessions.step("base", action)
        for pivot in range(len(PURCHASE)):
            rollback = sessions.rollback("retry", task(), list(PURCHASE[:pivot]), seen[: pivot + 1])
            assert (rollback.observations, rollback.diverged_at, rollback.exact) == (seen[: pivot + 1], None, True)
            assert sessions.step("retry", PURCHASE[pivot]) == steps[pivot]


def test_a_snapshot_is_exact(play):
    environment, _, _ = play(SEARCH, OPEN, "click[wine red]")
    handle = environment.snapshot()
    again = [environment.step(action).observation.text for action in ("click[black]", "click[Buy Now]")]
    environment.restore(handle)
    assert environment.state == handle
    assert [environment.step(action).observation.text for action in ("click[black]", "click[Buy Now]")] == again
    environment.restore(handle)
    assert environment.step("click[Buy Now]").reward == 1.0
    with pytest.raises(WorldError, match="step after the purchase"):
        environment.step(SEARCH)
    with pytest.raises(WorldError, match="restore needs a handle"):
        environment.restore("B00000MUG1")


def test_the_world_lists_its_tasks():
    world = make_world(WebShopSettings())
    train, test = world.tasks("train"), world.tasks("test")
    assert (len(train), len(test)) == (4096, 100)
    assert (test[0].task_id, test[0].payload, test[-1].payload) == (
        "webshop/test/04096",
        '{"goal": 4096}',
        '{"goal": 4195}',
    )
    assert train[0].task_type in {"beauty", "grocery", "garden", "electronics", "fashion"}
    assert [len(make_world(WebShopSettings(split_rule="webshop")).tasks(split)) for split in ("test", "dev")] == [
        500,
        1000,
    ]
    assert "search[your_query_here]" in world.system_prompt()


def test_an_oracle_wins_the_synthetic_shop_by_its_pages():
    """Search with the instruction, open the product that was meant, choose its options, buy: through the real world."""
    world = make_world(WebShopSettings())
    environment, won = world.make(), 0
    for listed in world.tasks("test")[:25]:
        environment.reset(listed)
        goal = environment.shop.goals[json.loads(listed.payload)["goal"]]
        actions = [
            f"search[{goal.instruction}]",
            f"click[{goal.product.asin}]",
            *(f"click[{value}]" for _, value in goal.options),
        ]
        if not all(environment.step(action).accepted for action in actions):
            continue  # it is on a later page of results
        step = environment.step("click[Buy Now]")
        assert (step.done, step.reward, step.success) == (True, 1.0, True)
        won += 1
    assert won >= 20


def test_hints_grow_precise_and_who_follows_the_last_one_wins():
    world = make_world(WebShopSettings())
    environment, vague, won = world.make(), set(), 0
    for listed in world.tasks("test")[:25]:
        environment.reset(listed)
        goal = environment.shop.goals[json.loads(listed.payload)["goal"]]
        first, plan, last = world.hints(listed)
        vague.add(first)
        assert all(one in plan for one in goal.attributes)
        assert f"at most {goal.price_upper:.2f} dollars" in plan
        assert goal.product.title not in plan
        options = [option.split(": ")[1] for option in plan.split(". Its price")[0].split(", ") if ": " in option]
        title = last.removeprefix(plan).removeprefix(" One that fits is called: ").removesuffix(".")
        buy = [
            f"search[{title}]",
            f"click[{goal.product.asin}]",
            *(f"click[{one}]" for one in options[-len(goal.options) :]),
        ]
        if all(environment.step(action).accepted for action in buy):
            won += environment.step("click[Buy Now]").reward == 1.0
    assert len(vague) == 1
    assert won >= 20


def test_a_task_of_another_catalogue_is_refused(shop):
    with pytest.raises(WorldError, match="goal 7 of a shop with 1 goals"):
        WebShopEnvironment(shop, WebShopSettings()).reset(task(7))
