"""`r3l plan`, held against numbers worked out by hand and against what the makers publish of the models."""

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from flows.cli.commands.prepare import plan as plan_command
from r3l.config import compose, preset_names
from r3l.config.machines import load_machine
from r3l.errors import ConfigError
from r3l.planning.memory import engine_cache_tokens, fits, saved_bytes, training_memory
from r3l.planning.plan import ObservedRun, make_plan, observe_run
from r3l.planning.shapes import PAPER, from_config, shape_of
from r3l.store.stage import Store
from tests.support.store_iteration import commit_iteration, iteration_tables

# Parameters as the published safetensors files count them.
PUBLISHED = {
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-4b": 4_022_468_096,
    "llama-3.2-3b": 3_212_749_824,
}
RUNS = [(model, machine) for model in PUBLISHED for machine in ("eight_gpus", "two_nodes")]


def planned(
    policy="qwen2.5-1.5b",
    machine="two_nodes",
    environment="alfworld",
    method="paper",
    gpu=None,
    observed=None,
    **assignments,
):
    config = compose(
        policy=policy,
        environment=environment,
        method=method,
        machine=machine,
        assignments=[f"{name.replace('__', '.')}={value}" for name, value in assignments.items()],
    )
    return make_plan(config, load_machine(machine, gpu=gpu), observed)


@pytest.mark.parametrize("model", PUBLISHED)
def test_parameters_are_those_that_are_published(model):
    assert PAPER[model].parameters == PUBLISHED[model]


@pytest.mark.parametrize(("model", "machine"), RUNS)
def test_the_papers_runs_are_presets_for_a_node_and_for_two(model, machine):
    config, there = compose(policy=model, machine=machine), load_machine(machine)
    assert (config.rollout.tasks, config.rollout.group_size, config.training.learning_rate) == (96, 8, 1e-6)
    assert config.engine.kind == "vllm_server"
    assert config.training.processes == there.training_gpus
    assert there.engine_gpus + there.training_gpus == 8 * there.nodes
    assert config.environment.kind == "alfworld"
    made = make_plan(config, there)
    assert made.troubles == []
    assert {one.section for one in made.figures} == {"memory", "storage"}
    assert any("--like RUN" in line for line in made.assumptions), "tokens and time are those of a run"


@pytest.mark.parametrize("machine", preset_names("machines"))
def test_a_machine_goes_with_every_policy(machine):
    for model in preset_names("policies"):
        assert compose(policy=model, machine=machine).engine.kind == "vllm_server"
        assert load_machine(machine).engine_gpus >= 1


def test_memory_of_a_training_gpu_by_hand():
    """1,543,714,304 weights: 16 bytes each over eight processes, and gathered 2 (bfloat16) + 4 (gradients): 8 bytes
    each."""
    config = compose(policy="qwen2.5-1.5b", machine="two_nodes")
    shape = shape_of(config.policy)
    memory = training_memory(config, shape, 8)
    assert memory.weights == 8 * 1_543_714_304
    # 28 layers x (4 x 1536 + 3 x 1536 + 4 x 256 + 4 x 8960) x 2 bytes = 2,666,496 a token, 20,480 tokens
    assert memory.activations == 2_666_496 * 20_480
    assert memory.logits == 3 * 4 * 1024 * 151_936
    assert memory.host == 8 * 4 * 1_543_714_304  # read in float32 by each; 2 + 8 + 4 bytes are saved by one
    assert training_memory(config, shape, 1).host == 14 * 1_543_714_304
    alone = training_memory(
        compose(policy="qwen2.5-1.5b", machine="two_nodes", assignments=["training.sharding=none"]), shape, 8
    )
    assert alone.weights == 18 * 1_543_714_304


def test_recomputed_activations_and_adapters_take_less():
    shape = PAPER["qwen2.5-1.5b"]
    less = training_memory(compose(policy="qwen2.5-1.5b", assignments=["training.checkpoint_segments=true"]), shape, 1)
    assert less.activations == 28 * 2 * 1536 * 2 * 20_480
    adapter = compose(policy="qwen2.5-1.5b", assignments=["policy.adapter=lora", "policy.lora_rank=16"])
    # a layer: rank 16 x ((1536+1536) + 2 x (1536+256) + (1536+1536) + 2 x (1536+8960) + (8960+1536))
    assert shape.adapter_parameters(16) == 28 * 16 * (3072 + 3584 + 3072 + 20_992 + 10_496)
    assert training_memory(adapter, shape, 1).weights == 2 * 1_543_714_304 + 16 * shape.adapter_parameters(16)
    assert saved_bytes(adapter) == 12
    averaged = compose(policy="qwen2.5-1.5b", assignments=["training.teacher_average=0.05"])
    assert saved_bytes(averaged) == saved_bytes(compose(policy="qwen2.5-1.5b")) + 4


def test_the_engines_cache_by_hand():
    """Keys and values of a token: 2 x 28 layers x 2 heads x 128 x 2 bytes = 28,672."""
    config = compose(policy="qwen2.5-1.5b")
    assert PAPER["qwen2.5-1.5b"].kv_bytes() == 28_672
    assert engine_cache_tokens(config, PAPER["qwen2.5-1.5b"], 80) == pytest.approx((72e9 - 3_087_428_608) / 28_672)


def test_what_does_not_fit_is_said():
    assert planned("qwen2.5-1.5b").troubles == []
    # four processes: 4 + 6 bytes for each of 7.6 thousand million weights, and a path's inputs; an H100 has 80 GB, an
    # H20 96
    [trouble] = planned("qwen2.5-7b", machine="eight_gpus", gpu="h100").troubles
    assert "the update needs 86 GB a GPU and a h100 has 80" in trouble
    [trouble] = planned("qwen3-4b", training__checkpoint_segments="false").troubles
    assert "training.checkpoint_segments=true" in trouble


def test_tokens_time_and_tables_are_those_of_a_stored_run():
    """32 tasks of 100 turns each in all, 16 kB of tables: 96 tasks take three times that."""
    observed = ObservedRun(
        "before", tasks=32, turns=3200, sampled=6000, trained=8000, bytes=16_000, seconds={"base": 10.0, "updates": 5.0}
    )
    plan = planned(observed=observed)
    assert (plan.value("turns"), plan.value("sampled tokens"), plan.value("response tokens")) == (9600, 18_000, 24_000)
    assert plan.value("tables") == pytest.approx(48_000 / 1e9)
    assert plan.value("policy and optimiser") == pytest.approx(14 * 1.543714304)
    assert (plan.value("base"), plan.value("updates"), plan.value("iteration")) == (30.0, 15.0, 45.0)
    twice = planned(observed=observed, training__epochs=2, training__minibatches=4)  # four parts of two passes
    assert (twice.value("updates"), twice.value("iteration")) == (30.0, 60.0)
    assert planned(observed=replace(observed, epochs=2.0)).value("updates") == 7.5


def test_a_run_is_observed_with_its_epochs(tmp_path):
    """Two iterations by hand: one update of two epochs and two minibatches, one of a single step."""
    store = Store.open(str(tmp_path))
    for iteration, steps in ((0, [(0, 0), (0, 1), (1, 0), (1, 1)]), (1, [(0, 0)])):
        tables = iteration_tables(iteration)
        (row,) = tables["updates"]["updates"]
        tables["updates"]["updates"] = [row | {"epoch": epoch, "minibatch": part} for epoch, part in steps]
        commit_iteration(store, iteration=iteration, tables=tables)
    assert observe_run(store, "demo").epochs == 1.5


def test_a_folder_says_its_own_shape():
    config = {
        "model_type": "llama", "num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "vocab_size": 128_256,
        "tie_word_embeddings": True,
    }  # fmt: skip
    assert from_config(config, "x") == PAPER["llama-3.2-3b"]
    with pytest.raises(ConfigError, match="no 'hidden_size'"):
        from_config({"num_attention_heads": 4, "num_hidden_layers": 2}, "config.json")
    assert shape_of(compose().policy).parameters > 100_000  # the embedded policy's own config.json


def test_the_command_plan_prints_its_figures(tmp_path):
    app = typer.Typer()
    app.command("plan")(plan_command)
    app.command("other")(lambda: None)
    runner = CliRunner(env={"COLUMNS": "160"})
    printed = runner.invoke(app, ["plan", "--policy", "qwen2.5-7b", "--gpu", "h100"])
    assert printed.exit_code == 0, printed.output
    assert "qwen2.5-7b on alfworld" in printed.output
    assert "4 h100 sample, 4 train" in printed.output
    assert "does not fit" in printed.output
    found = json.loads(runner.invoke(app, ["plan", "--machine", "two_nodes", "--json"]).output)
    assert {one["section"] for one in found["figures"]} == {"memory", "storage"}
    assert (
        runner.invoke(app, ["plan", "--machine", "moon"])
        .exception.args[0]
        .startswith("unknown preset 'moon' in machines")
    )


def test_one_gpu_samples_and_trains_in_turns():
    """1.5 thousand million weights of 18 bytes and 2 GB of a sleeping server; 20,480 tokens recomputed, a chunk of
    logits."""
    plan = planned(machine="one_gpu")
    update = 18 * 1_543_714_304 + 28 * 2 * 1536 * 2 * 20_480 + 3 * 4 * 1024 * 151_936
    assert plan.value("training GPU: in all") == pytest.approx((update + 2e9) / 1e9)
    assert plan.value("host: weights of vLLM asleep") == pytest.approx(3.087428608)
    assert plan.troubles == []
    [trouble] = planned(machine="one_gpu", gpu="rtx4090").troubles
    assert "the update needs 35 GB a GPU and a rtx4090 has 24" in trouble


def test_what_fits_on_one_gpu_by_hand():
    """An adapter of rank 16 on 7.6 thousand million weights of 2 bytes: 15.2 GB, 0.6 GB of the adapter, 2 GB asleep and
    1.9 GB of logits leave 1.9 of an L4's 21.6 GB, and a token's inputs take 28 x 2 x 3584 x 2 = 401,408 bytes."""
    asked = compose(policy="qwen2.5-7b", machine="one_gpu", assignments=["policy.adapter=lora"])
    found = {(one.policy, one.adapter, one.gpu): one.context_tokens for one in fits("one_gpu", asked)}
    weights, adapter = 2 * 7_615_616_512, 16 * PAPER["qwen2.5-7b"].adapter_parameters(16)
    room = 21.6e9 - weights - adapter - 2e9 - 3 * 4 * 1024 * 152_064
    assert found[("qwen2.5-7b", "lora", "l4")] == int(room / 401_408 / 1024) * 1024 == 4096
    assert found[("qwen2.5-7b", "lora", "l40s")] == found[("qwen2.5-1.5b", "none", "h100")] == 20_480
    assert found[("qwen2.5-1.5b", "none", "l4")] == 0
    assert len(found) == 9, "three examples, of which the policy asked for is one, on three sizes"


def test_the_command_says_what_fits():
    app = typer.Typer()
    app.command("plan")(plan_command)
    done = CliRunner().invoke(app, ["--machine", "one_gpu", "--policy", "qwen3-4b", "--json"])
    fitting = json.loads(done.stdout)["fits"]
    assert [one["policy"] for one in fitting].count("qwen3-4b") == 3
    assert "fits" not in json.loads(CliRunner().invoke(app, ["--machine", "eight_gpus", "--json"]).stdout)
