def drifted(query: str) -> str:
    return query
