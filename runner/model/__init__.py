"""Asking a model, whatever the provider."""
