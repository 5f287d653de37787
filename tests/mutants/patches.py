"""Faults that tests must see: each a line of the store, the credit or the identity made wrong, and the tests that fail
then."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault. `before` stands once in the file; `tests` are pytest's arguments, of which at least one test fails."""

    name: str
    file: str
    before: str
    after: str
    tests: str

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


STAGE, SWEEP, LOCK = "r3l/store/stage.py", "r3l/store/sweep.py", "r3l/store/files/lock.py"
PROCESS, STAGING, LOCAL = "r3l/store/files/process.py", "r3l/store/files/staging.py", "r3l/store/files/local.py"
MANIFEST, DIGESTS, UNSTORABLE = "r3l/store/manifest.py", "r3l/store/digests.py", "r3l/store/tables/unstorable.py"
SNAPSHOTS, PLACES = (f"r3l/store/policies/{name}.py" for name in ("snapshots", "places"))
PULLER = "flows/placement/puller.py"
ADVANTAGES, MASK = (f"r3l/credit/{name}.py" for name in ("advantages", "turns"))
REPORT, IDENTITY = "r3l/exploration/report.py", "r3l/pipeline/stages/identity.py"
(T_STAGE, T_LOCK, T_STAGING, T_CREDIT, T_IDENTITY, T_POLICIES, T_PLACES, T_PULLER, T_UNSTORABLE, T_EXPLORATION) = (
    f"tests/unit/test_{name}.py"
    for name in (
        "store_stage", "store_lock", "store_staging", "credit", "stage_identity", "store_policies",
        "store_policy_places", "store_puller", "store_unstorable", "exploration",
    )
)  # fmt: skip
T_TRIP = "tests/properties/test_store_round_trip.py"

# fmt: off
OF_THE_STORE = [
    Mutant("evidence swept", SWEEP, "of the manifest\n        return []", "of the manifest\n        return parts", f"{T_LOCK} -k can_not_be_read"),
    Mutant("a writer at work swept", SWEEP, "if held_by_me(files, lock):", "if True:", f"{T_LOCK} -k at_work"),
    Mutant("named parts swept", SWEEP, "for path in parts if path not in named]", "for path in parts]", f"{T_LOCK} -k sweeping_deletes"),
    Mutant("a manifest's place by any number", "r3l/store/layout.py", "return key if key.manifest == manifest_path else None",
           "return key", f"{T_STAGE} -k odd_name"),
    Mutant("an earlier partition counted", "r3l/pipeline/iteration.py", "        withdraw_others(bench, refs)\n", "        pass\n",
           "tests/flows/test_other_sizes.py -k partition"),
    Mutant("a lock kept by who could not write it", LOCK, "        give_up(files, path, mine)  # it may", "        pass  # it may",
           f"{T_LOCK} -k though_its"),
    Mutant("a refused question's clock runs on", "r3l/audit/web/sandbox_process.py", "        finally:\n            signal.setitimer",
           "        else:\n            signal.setitimer", "tests/unit/test_audit_sandbox.py -k refusal"),
    Mutant("questions that delete", "r3l/store/query.py", "BEGIN TRANSACTION READ ONLY", "BEGIN TRANSACTION",
           "tests/unit/test_store_user_queries.py -k outside_the_store"),
    Mutant("parts after the manifest", LOCAL, "            self._place(staged)\n            with self._guard():\n",
           "            named |= staged\n            with self._guard():\n", f"{T_STAGE} -k all_that_it_names"),
    Mutant("a name before its bytes", LOCAL, "                sync(handles)\n", "", f"{T_STAGE} -k all_that_it_names"),
    Mutant("never found", STAGE, "        return manifests.reference(manifest)\n\n    def intact", "        return None\n\n    def intact",
           T_STAGE),
    Mutant("found with any fingerprint", STAGE, 'manifest["fingerprint"] != fingerprint:', "False:", T_STAGE),
    Mutant("found without a look at its parts", STAGE, "manifests.read_part(self.files, key, part)\n            if",
           "pass\n            if", "tests/properties/test_store_corruption.py"),
    Mutant("found with parents of another time", STAGE, "if changes := manifests.outdated_parents(self.files, manifest):",
           "if changes := []:", f"{T_STAGE} -k made_from"),
    Mutant("what later iterations rest on rewritten", STAGE, "if not same and self.files", "if False and self.files", T_STAGE),
    Mutant("old parts kept", STAGE, "            self._drop_unnamed(key, parts)\n", "            pass\n", T_STAGE),
    Mutant("checksum not looked at", MANIFEST, 'if checksum != manifest["checksum"]:', "if False:",
           "tests/properties/test_store_corruption.py"),
    Mutant("a part's content not looked at", MANIFEST, 'if sha256(content).hexdigest() != entry["sha256"]:', "if False:",
           "tests/properties/test_store_corruption.py"),
    Mutant("every taker wins", LOCAL, "if self.token(path) != token:", "if False:", T_LOCK),
    Mutant("a copy for a part's rename", LOCAL, "os.rename(staging_file, target)", "shutil.copyfile(staging_file, target)",
           "tests/properties/test_store_kills.py -k lose_nothing"),
    Mutant("the dead hold their lock", LOCK, "return self.lease_left > 0 if is_alive is None else is_alive",
           "return self.lease_left > 0", f"{T_LOCK} -k killed_holder"),
    Mutant("who can't be seen is dead", LOCK, "return self.lease_left > 0 if is_alive is None else is_alive", "return bool(is_alive)", T_LOCK),
    Mutant("renewed tomorrow", LOCK, "if age >= -SKEW_SECONDS else 0.0", "if True else 0.0", T_LOCK),
    Mutant("a host name is enough", PROCESS, "(process.host, process.boot, process.namespace) != here()", "process.host != here()[0]",
           T_LOCK),
    Mutant("a process number is enough", PROCESS, "return start is not None and abs(start - process.start) < CLOCK_S",
           "return start is not None", f"{T_LOCK} -k given_out_again"),
    Mutant("zombies live", PROCESS, "if process.status() == psutil.STATUS_ZOMBIE:", "if False:", f"{T_LOCK} -k waited_for"),
    Mutant("the living are swept", STAGING, "return not lives", "return True", T_STAGING),
    Mutant("the dead are not swept", STAGING, "return not lives", "return False", T_STAGING),
    Mutant("updates of other iterations swept", STAGING, "return int(update[1]) == iteration", "return True", T_STAGING),
    Mutant("the guard swept", STAGING, "path.name != GUARD and ", "", T_STAGING),
    Mutant("turns without their attempt", UNSTORABLE, "not in left_out]", "is not None]", T_UNSTORABLE),
    Mutant("a policy without its tokenizer", SNAPSHOTS, '    "tokenizer*.json",\n', "", f"{T_POLICIES} -k decides"),
    Mutant("a policy without its template", SNAPSHOTS, '    "chat_template.*",\n', "", f"{T_POLICIES} -k decides"),
    Mutant("a policy with its optimiser", SNAPSHOTS, ' and not path.name.startswith("optimizer")', "", f"{T_POLICIES} -k decides"),
    Mutant("half a policy shared", PLACES, "if digest_in(final) == digest:", "if True:", f"{T_PLACES} -k gives_way"),
    Mutant("one name for all starters", PLACES, 'STAGING / staging_name("policy")', 'STAGING / digest', f"{T_PLACES} -k four_starters"),
    Mutant("a key that nobody needs", PULLER, "if key and not", "if False and not", T_PULLER),
    Mutant("bodies without end", PULLER, " or int(length) > MOST_BYTES", "", T_PULLER),
    Mutant("connections without end", PULLER, "if self._free.acquire(blocking=False):", "if True:", T_PULLER),
    Mutant("a stage without max_turns", "r3l/config/section.py", "            settings[name] = value\n",
           '            settings |= {} if name == "max_turns" else {name: value}\n', T_IDENTITY),
    Mutant("a stage without its prompts", IDENTITY, '**({"prompts": fingerprint_of(prompt_texts)} if prompt_texts else {}),', "", T_IDENTITY),
    Mutant("a stage without its code", IDENTITY, '        "code": CODE_VERSIONS[stage],\n', "", T_IDENTITY),
    Mutant("a stage without its parents", DIGESTS, '"parents": parents,', '"parents": [],', f"{T_STAGE} {T_TRIP}"),
    Mutant("a stage without its policy", DIGESTS, '"policy": policy,', '"policy": "",', f"{T_STAGE} {T_TRIP}"),
    Mutant("digests with wall times", DIGESTS, "if field.name in VOLATILE or unused:", "if unused:", f"{T_STAGE} tests/unit/test_replay_stage.py"),
    Mutant("a copy for a rename", "r3l/training/checkpoint.py", "    partial.rename(folder)\n",
           "    shutil.copytree(partial, folder)\n    shutil.rmtree(partial)\n", "tests/unit/test_training_job.py -k by_a_rename"),
    Mutant("ddof 0", ADVANTAGES, 'scale: Literal["std", "none"], ddof: int = 1', 'scale: Literal["std", "none"], ddof: int = 0', T_CREDIT),
    Mutant("no epsilon", ADVANTAGES, "EPSILON = 1e-6", "EPSILON = 1e-3", T_CREDIT),
    Mutant("degenerate groups divided", ADVANTAGES, "if degenerate(rewards):", "if False:",
           f"{T_CREDIT} tests/properties/test_credit_properties.py"),
    Mutant("negatives amplified", ADVANTAGES, "np.where(scaled > 0, alpha * scaled, scaled)", "alpha * scaled", T_CREDIT),
    Mutant("failures on top", ADVANTAGES, ' and not degenerate(rewards):', ":", T_CREDIT),
    Mutant("the pivot masked", MASK, "turn >= mask_turn", "turn > mask_turn", T_CREDIT),
    Mutant("the largest pivot", MASK, "return min((pivot or 0", "return max((pivot or 0", T_CREDIT),
    Mutant("a pivot after the end", REPORT, "if not 0 <= pivot < turns:", "if not 0 <= pivot <= turns:", T_EXPLORATION),
    Mutant("reports nested without end", REPORT, "if depth(value) > DEEPEST:", "if False:", T_EXPLORATION),
    Mutant("half characters in reports", REPORT, "        json.dumps(value, ensure_ascii=False).encode()\n", "", T_EXPLORATION),
]
# fmt: on
