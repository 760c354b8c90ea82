"""Benchmarks: what a turn, a decision, a script or a fleet costs here, as figures of one run. Nothing in here is a test."""
