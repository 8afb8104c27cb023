def extract_items(text, keyword):
    return [line for line in text.splitlines() if keyword in line][:30]
