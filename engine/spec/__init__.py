"""`workflow.yaml`: reading it, judging it, and the typed document everything else works on (contract 01)."""
