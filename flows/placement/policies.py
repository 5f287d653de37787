"""Policies that a remote shard needs: their places in the store, without any local folder.

Where servers sample, the host gets tokenizer and template and no weights. No host gets the optimiser's state, which is
the update's.
"""

from dataclasses import asdict
from typing import Any

from r3l.config import Config
from r3l.config.engines import VllmServerSettings
from r3l.engines.base import PolicySnapshot
from r3l.engines.canary import CANARY
from r3l.pipeline.policies import Policies, pullable
from r3l.store.files.local import replace_text
from r3l.store.policies.places import fetch_policy, fetch_tokenizer, place_in_store, share_tokenizer
from r3l.store.stage import Store


def with_adopted_servers(config: Config) -> Config:
    """Take servers that already have the policy from the flow as they are: later hosts do not load it again."""
    if config.engine.kind != "vllm_server":
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"adopt": True})})


def share_policies(config: Config, store: Store, policies: Policies) -> dict[str, Any]:
    """Describe the policies for hosts that see the store alone. A starting policy is put there first."""
    start, behaviour = policies.start, policies.behaviour
    if isinstance(config.engine, VllmServerSettings):
        snapshot = pullable(store, behaviour) if config.engine.puller_port else behaviour
        return {
            "start": start.digest,
            "tokenizer": share_tokenizer(store, start.path, start.digest),
            "behaviour": asdict(snapshot),
        }
    place = place_in_store(store, start.path, start.digest)
    sampling = place_in_store(store, behaviour.path, behaviour.digest)
    return {
        "start": start.digest,
        "place": place,
        "behaviour": {"digest": behaviour.digest, "place": sampling, "adapter": behaviour.base_path is not None},
    }


def fetch_policies(config: Config, store: Store, digests: dict[str, Any]) -> Policies:
    """Fetch the policies as a visiting host has them; it trains none. Raise `StoreError` where the store's are not
    those that were told."""
    if config.engine.kind == "vllm_server":  # its path is the servers' own, and its canary was checked by the flow
        behaviour = PolicySnapshot(**digests["behaviour"])
        return Policies(
            PolicySnapshot(str(fetch_tokenizer(store, digests["start"])), digests["start"]),
            behaviour,
            behaviour,
            None,
            None,
        )
    start = PolicySnapshot(str(fetch_policy(store, digests["place"], digests["start"])), digests["start"])
    source = digests["behaviour"]
    path = fetch_policy(store, source["place"], source["digest"])
    behaviour = PolicySnapshot(str(path), source["digest"], start.path if source["adapter"] else None, source["place"])
    folder = path.parent
    if not (folder / CANARY).is_file() and (
        canary := store.files.read(f"{source['place'].rpartition('/')[0]}/{CANARY}")
    ):
        replace_text(folder / CANARY, canary.decode())
    return Policies(start, behaviour, behaviour, None, folder)
