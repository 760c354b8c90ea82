"""The `archmax` command: its table, parsing, help, completion, streams and renderers (07)."""
