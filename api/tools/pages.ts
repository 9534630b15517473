/**
 * Divides a list into pages by number of characters, as the original tool server does. No state is kept between
 * requests: each request builds all pages and returns one of them. `json-size.ts` defines the sizes.
 *
 *   1. Strings longer than `previewChars` are truncated, and end with the number of missing characters.
 *   2. Pages are filled in order. An item that does not fit starts a new page. An item larger than a page gets a page
 *      of its own.
 *   3. If the page with its envelope is still too long, its strings are truncated to the greatest length for which it
 *      fits.
 *   4. If there is no such length, the page has no items, and a preview of its JSON.
 */
import { characterCount, firstCharacters, formatNumber, jsonLength } from './json-size.ts';
import { PythonNumber } from './python-numbers.ts';

export const maxPageCharacters = 30_000;
export const defaultPageCharacters = 25_000;
export const defaultPreviewCharacters = 150;

export interface PageOptions {
  /** Starts at 1. A page that does not exist is empty. */
  readonly pageNumber: number;
  /** Larger values than {@link maxPageCharacters} are reduced to it. */
  readonly maxCharsPerPage: number;
  /** 0 or less: strings are not truncated. */
  readonly previewChars: number;
}

type Envelope = Readonly<Record<string, unknown>>;

/** Returns the envelope of one page; `itemsName` is the name of its list. */
export function buildPage(itemsName: string, items: readonly unknown[], options: PageOptions): Envelope {
  const { pageNumber, previewChars } = options;
  const maxChars = Math.min(options.maxCharsPerPage, maxPageCharacters);
  const cutToPreview = createCut(previewChars);
  const pages = fillPages(items, maxChars, cutToPreview);
  const envelope = (list: readonly unknown[]) => ({
    [itemsName]: list,
    page_number: pageNumber,
    total_pages: pages.length,
    max_chars_per_page: maxChars,
    preview_chars: previewChars,
  });
  const page = pages[pageNumber - 1] ?? [];
  const whole = envelope(page);
  const fits = (cut: Cut) => jsonLength(whole, 'ascii', maxChars, cut) <= maxChars;
  const copy = (cut: Cut) => envelope(page.map((item) => mapStrings(item, cut)));
  if (page.length === 0 || fits(cutToPreview)) return copy(cutToPreview);
  let best: Cut | undefined;
  // Without the characters of its strings, a page is shorter than with strings of any length.
  if (fits(() => '')) {
    const lengths = new Map<string, number>();
    for (let low = 0, high = maxCutLength; low <= high; ) {
      const middle = Math.floor((low + high) / 2);
      const cut: Cut = (text) => cutString(cutToPreview(text), middle, lengths);
      if (fits(cut)) {
        best = cut;
        low = middle + 1;
      } else high = middle - 1;
    }
  }
  return best ? copy(best) : buildPreview(itemsName, whole, { maxChars, cut: cutToPreview });
}

/** Upper bound of the search for the length to which the strings of a page are truncated. */
const maxCutLength = 100_000;

function fillPages(items: readonly unknown[], maxChars: number, cut: Cut): unknown[][] {
  const pages: unknown[][] = [];
  let page: unknown[] = [];
  let characters = 0;
  for (const item of items) {
    const size = jsonLength(item, 'unicode', maxChars, cut);
    if (page.length > 0 && characters + size > maxChars) {
      pages.push(page);
      page = [];
      characters = 0;
    }
    page.push(item);
    characters += size;
  }
  return page.length > 0 ? [...pages, page] : pages;
}

type Cut = (text: string) => string;

/** Returns a function that truncates strings to `length` characters, and caches those that it truncated. */
function createCut(length: number): Cut {
  const results = new Map<string, string>();
  return (text) => {
    if (length <= 0 || text.length <= length) return text;
    const result = results.get(text) ?? cutString(text, length);
    results.set(text, result);
    return result;
  };
}

/** Truncates every string of `value` that has more than `length` characters, except keys. With 0, nothing is truncated. */
export function cutStrings(value: unknown, length: number): unknown {
  return length <= 0 ? value : mapStrings(value, (text) => cutString(text, length));
}

/** Returns a copy of `value` with the results of `cut` for its strings, except keys. */
function mapStrings(value: unknown, cut: Cut): unknown {
  if (typeof value === 'string') return cut(value);
  if (typeof value !== 'object' || value === null || value instanceof PythonNumber) return value;
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, cut));
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, mapStrings(member, cut)]));
}

/** @param lengths caches the lengths of strings, for repeated calls with the same string. */
function cutString(text: string, length: number, lengths?: Map<string, number>): string {
  if (length <= 0 || text.length <= length) return text;
  const count = lengths?.get(text) ?? characterCount(text);
  lengths?.set(text, count);
  return count <= length ? text : `${firstCharacters(text, length)}… (+${count - length} chars)`;
}

const previewOverhead = 1_000;
const minPreviewCharacters = 100;

/** The page without its items, and the start of its JSON. */
function buildPreview(
  itemsName: string,
  page: Envelope,
  { maxChars, cut }: { readonly maxChars: number; readonly cut: Cut },
): Envelope {
  const suffix = '\n… (output truncated, exceeded max_chars_per_page)';
  const count = Math.max(minPreviewCharacters, Math.floor((maxChars - suffix.length - previewOverhead) / 2));
  const { [itemsName]: _, ...rest } = page;
  return {
    ...rest,
    [itemsName]: [],
    _truncated: true,
    _truncated_message: 'Page exceeded character budget; content truncated.',
    _truncated_preview: writePython(page, count, cut) + suffix,
  };
}

/** The first `count` characters of `value` as JSON with escapes and with Python's separators. Reads no further. */
function writePython(value: unknown, count: number, cut: Cut): string {
  let text = '';
  const add = (part: string) => {
    text += part;
    return text.length < count;
  };
  const writeList = (list: readonly unknown[]): boolean => {
    let separator = '[';
    for (const item of list) {
      if (!(add(separator) && write(item))) return false;
      separator = ', ';
    }
    return add(list.length === 0 ? '[]' : ']');
  };
  const writeObject = (members: Readonly<Record<string, unknown>>): boolean => {
    let separator = '{';
    for (const key of Object.keys(members)) {
      if (!(add(`${separator}${escapeString(key, count)}: `) && write(members[key]))) return false;
      separator = ', ';
    }
    return add(separator === '{' ? '{}' : '}');
  };
  const write = (each: unknown): boolean => {
    if (typeof each === 'string') return add(escapeString(cut(each), count));
    if (typeof each === 'number') return add(formatNumber(each));
    if (each instanceof PythonNumber) return add(each.text);
    if (typeof each !== 'object' || each === null) return add(JSON.stringify(each));
    return Array.isArray(each) ? writeList(each) : writeObject(each as Readonly<Record<string, unknown>>);
  };
  write(value);
  return text.slice(0, count);
}

function escapeString(text: string, count: number): string {
  // Each character has at least one character of JSON.
  return JSON.stringify(text.slice(0, count + 2)).replace(
    /[\x7f-\uffff]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
