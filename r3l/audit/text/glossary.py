"""The words of the pages, each once: the page of words shows them all, and headers link to theirs."""

from typing import NamedTuple

from markupsafe import Markup


class Word(NamedTuple):
    name: str
    meaning: str


GLOSSARY = {  # by the id that its place on the page has, in the order of the stages
    "iteration": Word("iteration", "one pass of all stages: sample, reflect, retry, credit, train; counted from 0"),
    "stage": Word("stage", "a step of an iteration, whose rows are committed as Parquet files with a manifest"),
    "shard": Word("shard", "a part of the batch, by default two tasks, which goes through the stages by itself"),
    "branch": Word("branch", "a replay of an iteration with other settings, kept beside the run"),
    "policy": Word("policy", "the language model at one moment; its digest names its weights"),
    "fingerprint": Word("fingerprint", "hash of all that a stage depends on: the same fingerprint is not run again"),
    "slot": Word("slot", "place of the task in the batch of the iteration, from 0"),
    "group": Word("group", "the attempts at one task in one iteration that are credited against each other"),
    "base": Word("base", "an attempt that the policy plays without help"),
    "reflection": Word("reflection", "the report on a base: what went wrong, what to do, and from which turn on"),
    "parse": Word("parse", "share of the reflections that can be read as a report"),
    "guidance": Word("guidance", "what a retry is told; the distilled trajectory no longer holds it"),
    "pivot": Word("pivot", "turn that the retry begins from; the turns before it are the base's"),
    "retry": Word("retry", "an attempt that goes on from the pivot of a base, with the guidance in its context"),
    "gain": Word("gain", "reward of the retry less that of its base"),
    "improved": Word("improved", "share of the retries whose reward is above that of their base"),
    "distilled": Word("distilled", "a retry's replies behind the base's prefix, without the guidance"),
    "reward": Word("R", "reward of an attempt, what its environment says it is worth"),
    "mean": Word("mean", "mean reward of a group"),
    "std": Word("std", "standard deviation of the group's rewards, ddof 1"),
    "mixed": Word("mixed", "the group's rewards differ, so that it has a gradient"),
    "scaled": Word("A", "advantage: reward less the group's mean, by default divided by its std (paper, Eq. 5)"),
    "advantage": Word("Â", "advantage after amplification (paper, Eq. 8): top, positive and other A each have a rule"),
    "rule": Word("rule", "which case of the amplification applied: top, positive, negative, zero, degenerate, alone"),
    "positive": Word("Â > 0", "sum of a group's positive advantages"),
    "negative": Word("Â < 0", "sum of a group's negative advantages, as a positive number"),
    "mask": Word("mask", "turns that the base shares with its retry have weight 0 (paper, Eq. 7)"),
    "row": Word("row", "a training row: one sequence of tokens, a weight for each, and the loss that reads it"),
    "weight": Word("w", "factor of a token in the loss; of a trajectory of n tokens in a group of G by default 1/(nG)"),
    "pull": Word("w·Â", "what the token pulls with: above 0 it is made likelier, below 0 less likely"),
    "logprob": Word("log-probability", "natural logarithm of the probability with which the policy sampled the token"),
    "term": Word("term", "part of the loss: RL (attempts, by their advantages) or SFT (lessons that won)"),
    "objective": Word("objective", "the loss that reads a row, such as policy_gradient or cross_entropy"),
    "reduction": Word("reduction", "what a term is divided by: groups, its trained tokens, or nothing"),
    "step": Word("optimiser step", "one change of the weights; an update takes one or several"),
    "grad_norm": Word("grad norm", "length of the gradient before it is clipped"),
    "entropy": Word(
        "entropy", "mean entropy of the policy at trained tokens of bases, nats; it falls as replies settle"
    ),
    "kl": Word("KL", "divergence from the starting policy, k3 estimate, nats per token"),
    "drift": Word("drift", "divergence from the policy before the update, at tokens that the loss is silent on"),
    "canary": Word("canary", "mean difference of the engine's and the trainer's log-probabilities of the same tokens"),
    "held_out": Word("held-out", "success on tasks of a benchmark that no update has seen, with its 95 % interval"),
    "account": Word("account", "where every attempt went: trained on, led on, or dropped with a reason"),
}


def term(word: str, label: str = "", link: bool = True) -> Markup:
    """Return a word of a header, with its meaning as a tooltip and, in the app, a link to the page of words."""
    name, meaning = GLOSSARY[word]
    if not link:
        return Markup('<abbr title="{}">{}</abbr>').format(meaning, label or name)
    return Markup('<a class="term" href="/words#{}" title="{}">{}</a>').format(word, meaning, label or name)
