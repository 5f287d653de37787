"""Methods whose attempts are guided by words: a reflection, a critique, a hint or an oracle's advice."""
