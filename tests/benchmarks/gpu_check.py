"""What a GPU does with the update, the embedded engine and a whole iteration: `infra/gpu/check.sh run` calls it.

Each figure is written to the JSON file as soon as it is known; one that fails has its error there, and the next is
taken. `--toy`: shapes and sizes that a CPU does in a minute, so that the script is known to work when a GPU is there.
"""

import argparse
import json
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from r3l.config import compose
from r3l.config.engines import TransformersLocalSettings
from r3l.config.sections import PolicySettings
from r3l.engines.base import PolicySnapshot, Sampling
from r3l.engines.embedded.engine import TransformersLocal
from r3l.planning.memory import training_memory
from r3l.planning.shapes import PAPER, Shape
from r3l.training.gradients import RowScores, row_gradient
from r3l.training.trie.decoder import Decoder
from r3l.training.trie.dense_layouts import PackedLayout, PaddedLayout
from r3l.training.trie.layouts import Limits, TrieLayout
from r3l.training.trie.one_pass import OnePassTrie
from tests.benchmarks.update_layouts import group_of_eight
from tests.support.update_world import relative_error, rows_of, write_policy

SHAPES = {
    "0.5B": Shape(24, 896, 14, 2, 64, 4864, 151_936, tied=True, biased_qkv=True),
    "1.5B": PAPER["qwen2.5-1.5b"],
    "7B": PAPER["qwen2.5-7b"],
}
CARDS = {
    "l40s": 362,
    "l4": 121,
    "4090": 165,
    "a100": 312,
    "h20": 148,
    "h100": 989,
    "h200": 989,
}  # teraflops in bfloat16
TOY = {"toy": Shape(2, 64, 4, 2, 16, 128, 2048, tied=True, biased_qkv=True)}
PASSES = {
    "trie in one pass": OnePassTrie,
    "trie in one pass, recomputed": OnePassTrie,
    "packed": PackedLayout,
    "padded": PaddedLayout,
    "trie depth first": TrieLayout,
}
EQUAL = 1e-2  # relative, in norm: of a step in bfloat16 on the device, against the CPU's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--page", type=Path, help="measure nothing: write the figures of --out into this page")
    options = parser.parse_args()
    if options.page:
        options.page.write_text(with_figures(options.page.read_text(), json.loads(options.out.read_text())))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.toy:
        parser.error("torch sees no GPU: --toy takes small shapes on the CPU")
    with tempfile.TemporaryDirectory() as folder:
        taken = Taken(options.out, device, options.toy)
        for name, measure in figures(Path(folder), device, TOY if options.toy else SHAPES):
            taken.take(name, measure)
    raise SystemExit(taken.failed)


class Taken:
    """The file of figures."""

    def __init__(self, out: Path, device: str, toy: bool) -> None:
        card = torch.cuda.get_device_properties(0) if device == "cuda" else None
        self.out, self.failed = out, 0
        self.report: dict[str, Any] = {
            "device": card.name if card else "cpu",
            "memory_gb": card.total_memory / 1e9 if card else None,
            "torch": torch.__version__,
            "toy": toy,
            "figures": {},
        }

    def take(self, name: str, measure: Callable[[], dict[str, Any]]) -> None:
        began = time.perf_counter()
        try:
            figure = measure()
        except Exception as error:  # noqa: BLE001 - the next figure is worth its minute
            figure = {"ok": False, "error": f"{type(error).__name__}: {error}", "at": traceback.format_exc(limit=-2)}
        figure["seconds_in_all"] = round(time.perf_counter() - began, 2)
        self.failed |= not figure.get("ok", True)
        self.report["figures"][name] = figure
        self.out.write_text(json.dumps(self.report, indent=1, default=float) + "\n")
        print(name, json.dumps({key: value for key, value in figure.items() if key != "at"}, default=float), flush=True)


def figures(folder: Path, device: str, shapes: dict[str, Shape]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for adapter in ("none", "lora"):
        yield f"update equal to the CPU's, {adapter}", lambda adapter=adapter: equal_update(folder, device, adapter)
    yield "one iteration", lambda: iteration(folder, device)
    for name, shape in shapes.items():
        for layout in PASSES if shape is next(iter(shapes.values())) else list(PASSES)[:3]:
            yield f"pass of {name}, {layout}", lambda s=shape, layout=layout: pass_of(s, layout, device)
    name, shape = next(iter(shapes.items()))
    yield f"engine of {name}", lambda: engine_of(shape, folder / "engine", device)


def equal_update(folder: Path, device: str, adapter: str) -> dict[str, Any]:
    """Take one step in bfloat16 here and on the CPU, and compare what the optimiser saw."""
    from tests.unit.test_training_resume import step

    start = write_policy(folder / f"start-{adapter}")
    policy = {"policy_settings": {"adapter": adapter, "lora_rank": 4}, "dtype": "bfloat16"}
    seen = [
        moments(step(folder, start, 1, name=f"{adapter}-{where}-{number}", device=where, **policy))
        for number, where in enumerate(("cpu", device))
    ]
    error = relative_error(seen[1], seen[0])
    return {"relative_error": error, "ok": error < EQUAL}


def moments(out: Path) -> torch.Tensor:
    state = load_file(out / "optimizer" / "optimizer.safetensors")
    return torch.cat([state[name].flatten() for name in sorted(state) if name.startswith("exp_avg/")])


def iteration(folder: Path, device: str) -> dict[str, Any]:
    """Run one whole iteration with the embedded engine and the update on the device."""
    import r3l

    settings = {"store.root": str(folder / "store"), "rollout.tasks": 2, "rollout.group_size": 4}
    settings |= {"engine.device": device, "training.device": device}
    config = r3l.compose(run="check", environment="household", policy="household", settings=settings)
    summary = r3l.iterate(config)
    return {
        "stages": summary["stages"],
        "trained_tokens": summary["trained_tokens"],
        "ok": summary["trained_tokens"] > 0,
    }


def pass_of(shape: Shape, layout: str, device: str) -> dict[str, Any]:
    """Pass forward and backward over a group of eight with random weights in bfloat16."""
    decoder = random_decoder(shape, device)
    rows = rows_of(group_of_eight("varied"))
    gradients = [row_gradient(row, RowScores(np.zeros(len(row.positions))), 1.0) for row in rows]
    recompute = layout.endswith("recomputed")
    limits, seconds, computed = Limits(micro_batch_tokens=65536, logits_chunk=1024, recompute=recompute), [], 0
    on_gpu = device == "cuda"
    for _ in range(3):
        decoder.model.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
            torch.cuda.synchronize()
        began = time.perf_counter()
        computed = PASSES[layout]().backward(decoder, rows, gradients, limits).tokens_computed
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    best = min(seconds)
    figure = {"seconds": best, "tokens": sum(row.length for row in rows), "computed": computed}
    figure["teraflops"] = 6.0 * shape.parameters * computed / best / 1e12
    if on_gpu:
        names = [name for name in CARDS if name in torch.cuda.get_device_name().lower()]
        figure["share_of_the_card"] = figure["teraflops"] / CARDS[max(names, key=len)] if names else None
        held = computed if layout != "trie depth first" else max(row.length for row in rows)
        assignments = [
            *("training.dtype=bfloat16", "training.micro_batch_tokens=64", f"policy.context_tokens={held}"),
            *("training.device=cuda", f"training.checkpoint_segments={str(recompute).lower()}"),
        ]
        config = compose(policy="qwen2.5-1.5b", assignments=assignments)
        plan = training_memory(config, shape, 1)
        figure["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        # weights and their gradients; the optimiser is not held here
        figure["planned_gb"] = (4.0 * shape.parameters + plan.activations + plan.logits) / 1e9
    return figure


def engine_of(shape: Shape, folder: Path, device: str) -> dict[str, Any]:
    """Sample from the embedded engine, random weights in bfloat16: eight prompts of 512 tokens, four replies each."""
    write_policy(folder)  # the tokenizer
    random_decoder(shape, device).model.save_pretrained(str(folder))
    settings = TransformersLocalSettings(device=device, max_batch=32)
    engine = TransformersLocal(settings, PolicySettings(dtype="bfloat16", context_tokens=1024))
    rng, count = np.random.default_rng(0), 16 if device == "cpu" else 64
    prompts = [rng.integers(0, shape.vocabulary, 512).tolist() for _ in range(8)]
    try:
        replies, seconds = [], 0.0
        for _ in range(2):  # the first time, a GPU chooses its kernels
            engine.load_policy(PolicySnapshot(str(folder), "random"))
            began = time.perf_counter()
            futures = [engine.complete(f"{i}", prompts[i // 4], Sampling(1.0, count, i, ())) for i in range(32)]
            replies = [future.result() for future in futures]
            seconds = time.perf_counter() - began
        alone = engine.complete("0", prompts[0], Sampling(1.0, count, 0, ())).result()
        scored = engine.score([*prompts[0], *replies[0].token_ids])[-count:]
    finally:
        engine.close()
    gap = np.abs(np.array(scored) - replies[0].logprobs).mean()
    sampled = sum(len(reply.token_ids) for reply in replies)
    return {
        "seconds": seconds,
        "sampled_tokens_per_second": sampled / seconds,
        "mean_gap_to_its_own_scores": gap,  # nats a token, the same weights in two shapes of a batch
        "same_reply_alone": alone.token_ids == replies[0].token_ids,
        "ok": sampled == 32 * count and gap < 0.05,
    }


BEGIN, END = "<!-- begin: python -m tests.benchmarks.gpu_check --page -->", "<!-- end of the GPU's -->"


def with_figures(page: str, report: dict[str, Any]) -> str:
    """Put a report's table between the page's marks."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + "\n\n" + table_of(report) + "\n\n" + END + rest.partition(END)[2]


def table_of(report: dict[str, Any]) -> str:
    figures = report["figures"]
    lines = [
        f"{report['device']}, torch {report['torch']}.",
        "",
        "| pass forward and backward | seconds | tokens computed | of the card's arithmetic | memory, GB | planned |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in figures.items():
        if name.startswith("pass of "):
            cells = (one["seconds"], one["computed"], one.get("share_of_the_card"), one.get("peak_gb"))
            seconds, computed, share, peak = (0 if cell is None else cell for cell in cells)
            what, planned = name.removeprefix("pass of "), one.get("planned_gb", 0)
            lines.append(f"| {what} | {seconds:.3f} | {computed:,} | {share:.0%} | {peak:.1f} | {planned:.1f} |")
    errors = [one["relative_error"] for name, one in figures.items() if name.startswith("update equal")]
    engines = [
        f"{name}: {one['sampled_tokens_per_second']:.0f} sampled tokens a second"
        for name, one in figures.items()
        if name.startswith("engine of ")
    ]
    equal = f"A step in bfloat16 lies within {max(errors):.1%} of the CPU's, in norm (full weights and LoRA)."
    return "\n".join([*lines, "", f"{equal} Embedded {', '.join(engines)}, 32 replies side by side."])


def random_decoder(shape: Shape, device: str) -> Decoder:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        hidden_size=shape.hidden, intermediate_size=shape.feed_forward, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied, max_position_embeddings=32768,
    )  # fmt: skip
    with torch.device(device):
        model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    return Decoder(model.eval(), torch.bfloat16)


if __name__ == "__main__":
    main()
