"""The exam of credit: what each turn was worth is measured by playing on from it, and ways to give credit are scored
on that.

The value of a state is the mean reward of K continuations from it under the policy that sampled it; the true advantage
of a turn is the value after it less the value before it. `play` makes the continuations of a stored iteration and keeps
them in a folder of their own; `truth` reads values out of them; `ways` are methods, from the product or from outside,
asked for the credit of the same turns; `scores` compares.
"""
