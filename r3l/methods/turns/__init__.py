"""Methods that give each turn an advantage of its own."""
