"""Admit, run and shape tool calls."""
