"""What a policy's folder tells without a model being loaded: weights, tokenizer, template, context, memory."""

from collections.abc import Iterator
from pathlib import Path

import psutil

from r3l.config import Config
from r3l.config.machines import Machine
from r3l.engines.chat_format import ChatFormat
from r3l.engines.model_folder import model_config, trained_context, why_not
from r3l.errors import ChatFormatError
from r3l.pipeline.doctor.findings import Finding, fails, note, works
from r3l.pipeline.preflight import check_gpu
from r3l.planning.memory import WIDTHS, fit, training_memory
from r3l.planning.shapes import shape_of

TEXTS = (
    "You see a knife 1, a mug 2.\nYou are carrying: nothing.",
    '{"retry_from_step": 3}',
    "½ × 3 ≤ 2√2 — naïve 茶 🙂",
)
GB = 1e9


def weights(config: Config, folder: Path) -> Iterator[Finding]:
    """Yield the architecture, its size, and whether its weights can be read."""
    model = model_config(folder)
    if wrong := why_not(folder):
        yield fails("weights", wrong)
        return
    shape = shape_of(config.policy)
    architectures = ", ".join(map(str, model.get("architectures") or [model.get("model_type", "?")]))
    yield works("weights", f"{architectures}, {shape.parameters / 1e6:,.1f} million parameters, safetensors")


def tokenizer(chat: ChatFormat, folder: Path) -> Iterator[Finding]:
    """Yield whether text survives the tokenizer, and the model has a row for each token."""
    changed_texts = [
        text for text in TEXTS if chat.tokenizer.decode(chat.tokenizer.encode(text, add_special_tokens=False)) != text
    ]
    largest = max([0, *chat.tokenizer.added_tokens_decoder])
    rows = int(model_config(folder).get("vocab_size") or 0)
    if rows and largest >= rows:
        yield fails(
            "tokenizer",
            f"its largest token is {largest}, and the model has {rows} rows",
            "the tokenizer is another model's: take both from one place",
        )
    elif changed_texts:
        yield note(
            "tokenizer",
            f"{changed_texts[0]!r} does not come back as it went in",
            "observations are shown as the tokenizer has them; sampled ids are kept as they are",
        )
    else:
        yield works("tokenizer", f"text comes back as it went in, {rows:,} rows in the model")


def template(chat: ChatFormat) -> Iterator[Finding]:
    """Yield how a chat grows: what stands between replies, where a turn ends, who may speak."""
    user = [{"role": "user", "content": "x"}]
    between, opening = chat.following(user), chat.opening([{"role": "system", "content": "s"}, *user])
    yield works("template", f"grows turn by turn: {len(opening)} tokens to open, {len(between)} between replies")
    stop = chat.stop_ids[0]
    yield works("end of turn", f"token {stop}, {chat.tokenizer.decode([stop])!r}")
    try:
        chat.following([{"role": "system", "content": "s"}, *user])
        yield works("system turn", "a system message may stand between turns")
    except ChatFormatError:
        yield note("system turn", "none between turns", "keep method.guidance_position away from system messages there")


def thinking(chat: ChatFormat) -> Iterator[Finding]:
    """Yield what becomes of `<think>` of a reasoning model."""
    keeps_thinking = chat.keeps_thinking
    if keeps_thinking is None:
        yield works("thinking", "the template knows none; a reply is kept as it was sampled")
        return
    opening = f"; a reply opens with {chat.reply_opening!r}" if chat.reply_opening else ""
    opening += ", and is parsed with it" if chat.thought_opening else ""
    if keeps_thinking:
        yield works("thinking", f"the template keeps it between turns, and so do the ids{opening}")
        return
    yield note(
        "thinking",
        f"the template drops it from earlier turns; the ids keep it{opening}",
        "the policy is trained on what it saw and wrote, so its thoughts fill the context; a server that renders the "
        "chat anew shows it another prompt. policy.thinking=false turns it off where the template can",
    )


def context(config: Config, folder: Path) -> Iterator[Finding]:
    """Yield whether the context limit is one that the model was made for."""
    limit, tokens = trained_context(model_config(folder)), config.policy.context_tokens
    if limit is not None and tokens > limit:
        yield fails(
            "context", f"policy.context_tokens={tokens:,}, made for {limit:,}", f"--set policy.context_tokens={limit}"
        )
    else:
        yield works("context", f"policy.context_tokens={tokens:,}, made for {f'{limit:,}' if limit else 'any number'}")


def memory(config: Config, machine: Machine | None) -> Iterator[Finding]:
    """Yield whether engine and update have room: on the machine's GPU, or in this host's memory."""
    shape = shape_of(config.policy)
    if machine and machine.shared:
        gpu_fit = fit(config, machine.gpu)
        summary = f"one {machine.gpu} ({gpu_fit.memory_gb:g} GB) in turns: {gpu_fit.context_tokens:,} of "
        summary += f"{config.policy.context_tokens:,} tokens, {gpu_fit.needs_gb:.1f} GB"
        if gpu_fit.context_tokens >= config.policy.context_tokens // 1024 * 1024:
            yield works("memory", summary)
        else:
            yield fails("memory", summary, "a shorter policy.context_tokens, or policy.adapter=lora; see `r3l plan`")
        return
    engine = shape.parameters * WIDTHS[config.policy.dtype]
    update, free = training_memory(config, shape, 1).gpu, psutil.virtual_memory().available
    summary = f"engine {engine / GB:.2f} GB, update {update / GB:.2f} GB at the longest path"
    if config.training.device == "cuda" or config.engine.kind != "transformers_local":
        yield works("memory", f"{summary}; `r3l plan` has the machine")
    elif engine + update < free:
        yield works("memory", f"{summary}, {free / GB:.1f} GB free here")
    else:
        yield fails(
            "memory", f"{summary}, {free / GB:.1f} GB free here", "a shorter policy.context_tokens, or another machine"
        )


def gpu(config: Config) -> Iterator[Finding]:
    """Yield that the update has a GPU, where it asks for one. Raise `ConfigError` where it has none."""
    check_gpu(config)
    if config.training.device == "cuda":
        yield works("gpu", f"the update has one: {config.placement.update_deployment or 'that of this machine'}")
