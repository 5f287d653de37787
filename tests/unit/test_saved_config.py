"""The settings that a stored iteration was run with come back, or are refused in one line."""

import pytest

from r3l.config import compose
from r3l.errors import StoreError
from r3l.pipeline.settings.continuing import load_config, save_config
from r3l.store.check import check_run
from r3l.store.manifest import seal
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration

PLACE = "demo/iteration=00000/config.json"


def save(store: Store, **method: object) -> None:
    """The settings of an iteration as another version wrote them."""
    whole = compose(run="demo").model_dump(mode="json")
    store.files.put(PLACE, seal(whole | {"method": whole["method"] | method}))


def test_they_come_back_as_they_were_saved(tmp_path):
    store, config = Store.open(str(tmp_path)), compose(run="demo", assignments=["method.alpha=5"])
    save_config(store, config, 0)
    assert load_config(store, "demo", "", 0) == config


def test_one_that_is_not_known_and_damage_are_refused_in_a_line(tmp_path):
    store = Store.open(str(tmp_path))
    save(store, sft_reduction="by the moon")
    with pytest.raises(StoreError, match=rf"{PLACE}: these settings can't be read .*sft_reduction.*got 'by the moon'"):
        load_config(store, "demo", "", 0)
    store.files.put(PLACE, b"{}")
    with pytest.raises(StoreError, match=f"{PLACE}: changed after it was written"):
        load_config(store, "demo", "", 0)
    for content in (b"{", b"[]", seal({"method": 3})):
        store.files.put(PLACE, content)
        with pytest.raises(StoreError, match=f"{PLACE}: these settings can't be read"):
            load_config(store, "demo", "", 0)


def test_settings_that_were_changed_are_named_by_check_and_start_no_replay(tmp_path):
    store = Store.open(str(tmp_path))
    commit_iteration(store, iteration=0)
    save_config(store, compose(run="demo"), 0)
    assert check_run(store, "demo") == []
    path = tmp_path / PLACE
    path.write_text(path.read_text().replace('"alpha": 3.0', '"alpha": 4.0'))
    with pytest.raises(StoreError, match=f"{PLACE}: changed after it was written"):
        load_config(store, "demo", "", 0)
    assert [(found.check, found.place) for found in check_run(store, "demo")] == [("files", PLACE)]
