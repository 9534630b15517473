"""Pages by characters, as the original tool server builds them: a second implementation, for the tests of Runlake's.

Reads a JSON list of [items_name, items, page_number, max_chars, preview_chars] and writes the list of pages.
"""

import json
import sys

CAP = 30000


def shorten(value, length):
    if isinstance(value, str):
        rest = len(value) - length
        return value if length < 1 or rest <= 0 else f"{value[:length]}\u2026 (+{rest} chars)"
    if isinstance(value, list):
        return [shorten(each, length) for each in value]
    if isinstance(value, dict):
        return {key: shorten(each, length) for key, each in value.items()}
    return value


def page(name, items, number, max_chars, preview):
    budget = min(max_chars, CAP)
    items = shorten(items, preview)
    pages, sizes = [], []
    for item in items:
        size = len(json.dumps(item, ensure_ascii=False))
        if pages and sizes[-1] + size <= budget:
            pages[-1].append(item)
            sizes[-1] += size
        else:
            pages.append([item])
            sizes.append(size)
    shown = pages[number - 1] if 1 <= number <= len(pages) else []

    def envelope(content):
        return {
            name: content,
            "page_number": number,
            "total_pages": len(pages),
            "max_chars_per_page": budget,
            "preview_chars": preview,
        }

    whole = envelope(shown)
    if not shown or len(json.dumps(whole)) <= budget:
        return whole
    best, low, high = None, 0, 100000
    while low <= high:
        middle = (low + high) // 2
        candidate = envelope(shorten(shown, middle))
        if len(json.dumps(candidate)) <= budget:
            best, low = candidate, middle + 1
        else:
            high = middle - 1
    if best is not None:
        return best
    end = "\n\u2026 (output truncated, exceeded max_chars_per_page)"
    count = max(100, (budget - len(end) - 1000) // 2)
    return {
        **envelope([]),
        "_truncated": True,
        "_truncated_message": "Page exceeded character budget; content truncated.",
        "_truncated_preview": json.dumps(whole)[:count] + end,
    }


json.dump([page(*case) for case in json.load(sys.stdin)], sys.stdout)
