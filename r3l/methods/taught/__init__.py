"""Methods whose teacher is the policy itself, behind a context that knows more."""
