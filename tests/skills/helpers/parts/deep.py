NAME = "deep"
