def echo(text: str) -> dict:
    return {"text": text}
