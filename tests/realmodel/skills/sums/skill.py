"""Two tiny tools whose results can be checked."""


def add(a: float, b: float) -> str:
    """The sum, without a needless fraction."""
    return f"{a + b:.10g}"


def convert_temperature(degrees: float, to: str) -> str:
    """The temperature in the other scale."""
    if to == "fahrenheit":
        return f"{degrees * 9 / 5 + 32:.10g} degrees Fahrenheit"
    return f"{(degrees - 32) * 5 / 9:.10g} degrees Celsius"
