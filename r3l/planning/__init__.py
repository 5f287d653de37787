"""What an iteration will need, before anything is run: arithmetic over settings, the paper's measurements and stored
figures."""
