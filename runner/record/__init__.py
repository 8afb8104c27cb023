"""The trajectory: what happened, kept."""
