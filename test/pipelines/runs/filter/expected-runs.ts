/**
 * The meaning of the filter language in plain JavaScript, over runs in memory. It is written from the description of
 * the language and uses nothing of the product, so that both agree only if both are correct.
 */
export type Tree =
  | { readonly kind: 'and' | 'or'; readonly terms: readonly Tree[] }
  | { readonly kind: 'not'; readonly term: Tree }
  | { readonly kind: 'compare'; readonly operator: string; readonly field: string; readonly value: unknown }
  | { readonly kind: 'search'; readonly field?: string | undefined; readonly text: string };
type Comparison = Tree & { kind: 'compare' };

/**
 * A run in memory. `fields` has the plain values; times and durations are in microseconds. The documents are JSON as it
 * was sent.
 */
export interface ModelRun {
  readonly id: string;
  readonly traceId: string;
  readonly parentId: string | null;
  readonly isRoot: boolean;
  readonly fields: Readonly<Record<string, string | number | boolean | null>>;
  readonly tags: readonly string[];
  readonly documents: Readonly<Record<'metadata' | 'inputs' | 'outputs' | 'error' | 'name', string | null>>;
  readonly feedback: readonly { key: string; score: number | null; value: unknown; source: string }[];
}

interface Pair {
  readonly key: string;
  readonly [part: string]: unknown;
}

const replaceUnpairedSurrogates = (text: string) => Buffer.from(text).toString();
const plain = (value: unknown) =>
  typeof value === 'string' ? replaceUnpairedSurrogates(value) : JSON.stringify(value);

/** Returns every key of a JSON object; nested keys are paths, and items of a list have the key of the list. */
function flatten(value: object, path: string): Pair[] {
  return Object.entries(value).flatMap(([name, child]) => visit(`${path}${replaceUnpairedSurrogates(name)}`, child));
}
function visit(key: string, value: unknown): Pair[] {
  if (Array.isArray(value)) return value.length === 0 ? [{ key }] : value.flatMap((item) => visit(key, item));
  if (typeof value === 'object' && value !== null) return [{ key }, ...flatten(value, `${key}.`)];
  return [{ key, value: plain(value) }];
}

function listPairs(run: ModelRun, family: string): Pair[] {
  if (family === 'feedback')
    return run.feedback.map((each) => ({ ...each, value: each.value === null ? undefined : plain(each.value) }));
  const document = family === 'metadata' ? 'metadata' : `${family}s`;
  return flatten(JSON.parse(run.documents[document as 'inputs'] ?? '{}') as object, '');
}

function like(text: string, pattern: string): boolean {
  const source = [...pattern.matchAll(/\\(.)|(.)/gsu)].map(([, escaped, bare]) => {
    if (bare === '%') return '.*';
    if (bare === '_') return '.';
    return (escaped ?? bare ?? '').replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&');
  });
  return new RegExp(`^(?:${source.join('')})$`, 'su').test(text);
}

const isNumeric = (text: unknown) => typeof text === 'string' && /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i.test(text);

/** Returns whether one value satisfies a comparison; `neq` is evaluated as `eq`. An absent value never satisfies it. */
function holds(value: unknown, operator: string, wanted: unknown): boolean {
  if (operator === 'in') return (wanted as unknown[]).some((item) => holds(value, 'eq', item));
  if (wanted === null) return value === null || value === undefined;
  if (value === null || value === undefined) return false;
  if (operator === 'like') return like(String(value), replaceUnpairedSurrogates(String(wanted)));
  if (operator === 'eq' || operator === 'neq' || operator === 'has')
    return typeof wanted === 'string' ? value === replaceUnpairedSurrogates(wanted) : value === wanted;
  const [left, right] = [value as number, wanted as number];
  return { gt: left > right, gte: left >= right, lt: left < right, lte: left <= right }[operator] ?? false;
}

/** Does the same as {@link holds} for a value of a pair: text, or a number if the wanted value is a number. */
function matchesPairValue(value: unknown, operator: string, wanted: unknown): boolean {
  if (operator === 'in') return (wanted as unknown[]).some((item) => matchesPairValue(value, 'eq', item));
  if (typeof wanted === 'number') return isNumeric(value) && holds(Number(value), operator, wanted);
  return holds(value, operator, String(wanted));
}

function matchesPair(pair: Pair, { field, operator, value }: Comparison): boolean {
  const part = field.slice(field.indexOf('_') + 1);
  if (part === 'value') return matchesPairValue(pair.value, operator, value);
  return holds(pair[part], operator, typeof value === 'boolean' ? Number(value) : value);
}

/**
 * Returns whether the pairs satisfy the conditions: conditions on one family in one `and` apply to the same pair; `neq`
 * of a key applies to all pairs.
 */
function matchPairs(pairs: readonly Pair[], group: readonly Comparison[]): boolean {
  const absent = group.filter(({ field, operator }) => operator === 'neq' && field.endsWith('_key'));
  const rest = group.filter((each) => !absent.includes(each));
  if (absent.some((each) => pairs.some((pair) => matchesPair(pair, each)))) return false;
  if (rest.every(({ operator }) => operator === 'neq'))
    return !rest.some((each) => pairs.some((pair) => matchesPair(pair, each)));
  return pairs.some((pair) => rest.every((each) => matchesPair(pair, each) !== (each.operator === 'neq')));
}

const families = ['metadata', 'input', 'output', 'feedback'];
const findFamily = (tree: Tree) =>
  tree.kind === 'compare' ? families.find((family) => tree.field.startsWith(`${family}_`)) : undefined;

const decode = (json: string) => {
  const names: Record<string, string> = { n: '\n', r: '\r', t: '\t', b: '\b', f: '\f' };
  return replaceUnpairedSurrogates(
    json.replace(/\\(?:u([0-9a-f]{4})|(.))/gi, (_, code, character) =>
      code === undefined ? (names[character] ?? character) : String.fromCharCode(Number.parseInt(code, 16)),
    ),
  );
};

function searched(run: ModelRun, field: string | undefined, text: string): boolean {
  const fields = field === undefined ? (['name', 'error', 'inputs', 'outputs'] as const) : [field as 'name'];
  const lower = (value: string) =>
    [...text].every((character) => character <= '\x7f')
      ? value.replace(/[A-Z]/g, (a) => a.toLowerCase())
      : value.toLowerCase();
  return fields.some((name) => {
    const document = run.documents[name] ?? '';
    return lower(name === 'name' ? replaceUnpairedSurrogates(document) : decode(document)).includes(
      lower(replaceUnpairedSurrogates(text)),
    );
  });
}

export function matches(run: ModelRun, tree: Tree): boolean {
  if (tree.kind === 'or') return tree.terms.some((term) => matches(run, term));
  if (tree.kind === 'not') return !matches(run, tree.term);
  if (tree.kind === 'search') return searched(run, tree.field, tree.text);
  const terms = tree.kind === 'and' ? tree.terms : [tree];
  const grouped = families.map((family) => [family, terms.filter((term) => findFamily(term) === family)] as const);
  return (
    grouped.every(
      ([family, group]) => group.length === 0 || matchPairs(listPairs(run, family), group as Comparison[]),
    ) &&
    terms.every((term) => {
      if (findFamily(term) !== undefined) return true;
      return term.kind === 'compare' ? matchesComparison(run, term) : matches(run, term);
    })
  );
}

function matchesComparison(run: ModelRun, { operator, field, value }: Comparison): boolean {
  if (field === 'tags') return run.tags.some((tag) => holds(tag, operator, value)) !== (operator === 'neq');
  if (field === 'metadata') {
    const pairs = listPairs(run, 'metadata');
    if (operator === 'exists') return pairs.some(({ key }) => key === replaceUnpairedSurrogates(String(value)));
    const wanted = flatten(JSON.parse(String(value)) as object, '');
    return wanted.every((pair) => pairs.some((each) => each.key === pair.key && each.value === pair.value));
  }
  const own = field === 'is_root' || field === 'execution_order' ? Number(run.isRoot) : run.fields[field];
  return holds(own, operator, toComparable(field, value)) !== (operator === 'neq');
}

const units: Readonly<Record<string, number>> = { ms: 1e3, s: 1e6, m: 6e7, h: 36e8 };

/** Converts times and durations to microseconds, and booleans to numbers, also in lists. */
function toComparable(field: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => toComparable(field, item));
  if (typeof value === 'boolean') return Number(value);
  if (field === 'latency' && typeof value === 'number') return value * 1e6;
  if (typeof value !== 'string') return value;
  if (field.endsWith('_time')) return Date.parse(value) * 1e3;
  if (field === 'latency') return Number.parseFloat(value) * (units[value.replace(/[0-9.]/g, '')] ?? Number.NaN);
  return value;
}
