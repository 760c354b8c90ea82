"""The agent's files: one tree per session over session files and mounts, and the tools that work on it."""
