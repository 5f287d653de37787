"""Credit in plain numpy: what each member of an exploration group is worth, and which of its turns carry it."""
