"""Real parts shared by tests: servers, stores, worker processes, model scripts."""
