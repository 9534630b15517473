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
import { ExactNumber } from './exact-json.ts';
import { characterCount, firstCharacters, formatNumber, jsonLength } from './json-size.ts';

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
  const pages = fillPages(
    items.map((item) => cutStrings(item, previewChars)),
    maxChars,
  );
  const envelope = (list: readonly unknown[]) => ({
    [itemsName]: list,
    page_number: pageNumber,
    total_pages: pages.length,
    max_chars_per_page: maxChars,
    preview_chars: previewChars,
  });
  const page = pages[pageNumber - 1] ?? [];
  const whole = envelope(page);
  const fits = (each: Envelope) => jsonLength(each, 'ascii', maxChars) <= maxChars;
  if (page.length === 0 || fits(whole)) return whole;
  const lengths = new Map<string, number>();
  let best: Envelope | undefined;
  for (let low = 0, high = maxCutLength; low <= high; ) {
    const middle = Math.floor((low + high) / 2);
    const cut = envelope(page.map((item) => cutStrings(item, middle, lengths)));
    if (fits(cut)) {
      best = cut;
      low = middle + 1;
    } else high = middle - 1;
  }
  return best ?? buildPreview(itemsName, whole, maxChars);
}

/** Upper bound of the search for the length to which the strings of a page are truncated. */
const maxCutLength = 100_000;

function fillPages(items: readonly unknown[], maxChars: number): unknown[][] {
  const pages: unknown[][] = [];
  let page: unknown[] = [];
  let characters = 0;
  for (const item of items) {
    const size = jsonLength(item, 'unicode');
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

/**
 * Truncates every string of `value` that has more than `length` characters, except keys. With 0, nothing is truncated.
 *
 * @param lengths caches the lengths of strings, for repeated calls with the same value.
 */
export function cutStrings(value: unknown, length: number, lengths?: Map<string, number>): unknown {
  if (length <= 0) return value;
  if (typeof value === 'string') return cutString(value, length, lengths);
  if (typeof value !== 'object' || value === null || value instanceof ExactNumber) return value;
  if (Array.isArray(value)) return value.map((item) => cutStrings(item, length, lengths));
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, cutStrings(member, length, lengths)]));
}

function cutString(text: string, length: number, lengths: Map<string, number> | undefined): string {
  if (text.length <= length) return text;
  const count = lengths?.get(text) ?? characterCount(text);
  lengths?.set(text, count);
  return count <= length ? text : `${firstCharacters(text, length)}… (+${count - length} chars)`;
}

const previewOverhead = 1_000;
const minPreviewCharacters = 100;

/** The page without its items, and the start of its JSON. */
function buildPreview(itemsName: string, page: Envelope, maxChars: number): Envelope {
  const suffix = '\n… (output truncated, exceeded max_chars_per_page)';
  const count = Math.max(minPreviewCharacters, Math.floor((maxChars - suffix.length - previewOverhead) / 2));
  const { [itemsName]: _, ...rest } = page;
  return {
    ...rest,
    [itemsName]: [],
    _truncated: true,
    _truncated_message: 'Page exceeded character budget; content truncated.',
    _truncated_preview: writePython(page, count) + suffix,
  };
}

/** The first `count` characters of `value` as JSON with escapes and with Python's separators. */
function writePython(value: unknown, count: number): string {
  let text = '';
  const add = (part: string) => {
    text += part;
    return text.length < count;
  };
  const addMembers = (members: readonly (readonly [string, unknown])[], open: string, close: string): boolean => {
    const all = members.every(([key, member], index) => add(`${index === 0 ? open : ', '}${key}`) && write(member));
    return all && add(members.length === 0 ? open + close : close);
  };
  const write = (each: unknown): boolean => {
    if (typeof each === 'string') return add(escapeString(each, count));
    if (typeof each === 'number') return add(formatNumber(each));
    if (each instanceof ExactNumber) return add(each.text);
    if (typeof each !== 'object' || each === null) return add(JSON.stringify(each));
    if (Array.isArray(each)) {
      return addMembers(
        each.map((item) => ['', item] as const),
        '[',
        ']',
      );
    }
    const members = Object.entries(each).map(([key, member]) => [`${escapeString(key, count)}: `, member] as const);
    return addMembers(members, '{', '}');
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
