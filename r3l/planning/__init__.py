"""The needs of an iteration before it runs: arithmetic over settings, the paper's measurements and stored figures."""
