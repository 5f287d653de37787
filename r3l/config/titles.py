"""What forms call sections and settings: words, not the names of the code."""

from typing import Any

# Words that are not written as they stand in a name; one that ends a name may be a unit.
WRITTEN = {
    "kl": "KL",
    "sft": "SFT",
    "rl": "RL",
    "lora": "LoRA",
    "api": "API",
    "urls": "URLs",
    "adamw": "AdamW",
    "mlflow": "MLflow",
    "tensorboard": "TensorBoard",
    "wandb": "Weights & Biases",
    "trackio": "Trackio",
    "beta1": "AdamW beta 1",
    "beta2": "AdamW beta 2",
    "env": "environment variable",
    "heldout": "held-out",
    "dtype": "number format",
}
UNITS = {"s": "(seconds)", "mb": "(MB)"}
SECTIONS = {
    "Alfworld": "ALFWorld",
    "Math": "Math",
    "ReflectGRPO": "Reflect-GRPO",
    "CritiqueGRPO": "Critique-GRPO",
    "AgentRLVR": "Agent-RLVR",
    "TransformersLocal": "Embedded (transformers)",
    "VllmServer": "vLLM servers",
}


def section_title(section: type) -> str:
    """Entitle a section: Policy, not PolicySettings."""
    name = section.__name__.removesuffix("Settings")
    return SECTIONS.get(name, name)


def setting_title(name: str, _: Any) -> str:
    """Entitle a setting: KL coefficient, not kl_coefficient."""
    words = name.split("_")
    last = UNITS.get(words[-1], "") if len(words) > 1 else ""
    title = " ".join(WRITTEN.get(word, word) for word in (words[:-1] if last else words))
    return f"{title[:1].upper()}{title[1:]} {last}".rstrip()
