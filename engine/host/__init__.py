"""The engine for hosts: assemblies wired from explicit parts, and sessions driven in this process (05 §12–§14)."""
