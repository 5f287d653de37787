"""Hints for a shopping goal, from vague to precise: what counts, what it must have, and which product has it."""

from r3l.environments.webshop.catalogue import Goal

VAGUE = (
    "What counts is the kind of product, every attribute and option that is asked for, and the price. Choose each "
    "option on the product's page before you buy, and go back where a product lacks one."
)


def hints(goal: Goal) -> list[str]:
    """Write three hints. The first one is the same for all goals, the last one has the title of a product that fits."""
    requirements = [*goal.attributes, *(f"{name}: {value}" if name else value for name, value in goal.options)]
    needs = f"It has to be or have: {', '.join(requirements)}." if requirements else ""
    plan = " ".join(filter(None, [needs, f"Its price has to be at most {goal.price_upper:.2f} dollars."]))
    return [VAGUE, plan, f"{plan} One that fits is called: {goal.product.title}."]
