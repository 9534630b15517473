/**
 * A condition that follows from a filter and that a skip index of `runs` can evaluate: at least one stored row of every
 * matching run satisfies it.
 *
 * A query uses only one index ({@link ignoreOtherIndexes}). With two indexes, ClickHouse would skip each granule that
 * either index excludes, so that a run whose values are in different rows could be missed.
 */
import { getField } from './fields.ts';
import type { FilterContext, RunComparison, RunCondition } from './sql-terms.ts';

/** Yields the conditions that are not nested in `or` or `not`; every matching run satisfies them. */
export function* generateRequiredConditions(conditions: readonly RunCondition[]): Generator<RunCondition> {
  for (const condition of conditions) {
    if (condition.kind === 'and') yield* generateRequiredConditions(condition.terms);
    else yield condition;
  }
}

/** The expressions of the skip indexes `by_tag` and `by_metadata` in `schemas/clickhouse/0001_runs.sql`. */
const indexedTags = `if(isValidJSON(ifNull(tags, '[]')), JSONExtract(ifNull(tags, '[]'), 'Array(String)'), ['\\x01'])`;
const indexedMetadata = `if(isValidJSON(ifNull(extra, '{}')), arrayMap(pair -> if(startsWith(pair.2, '{') OR startsWith(pair.2, '['),
  concat(pair.1, '\\x01'), concat(pair.1, '\\x02', if(startsWith(pair.2, '"'), JSONExtractString(pair.2), pair.2))),
  JSONExtractKeysAndValuesRaw(ifNull(extra, '{}'), 'metadata')), ['\\x01'])`;
/** Stands for JSON that ClickHouse cannot parse or, after a key, for a value that is not a scalar. */
const marker = '\x01';
const pairSeparator = '\x02';
const threadKeys = ['thread_id', 'session_id', 'conversation_id'];
/**
 * Maximum number of values for which the index is used. With more values, a lookup in the index costs more than it
 * saves.
 */
const maxIndexedValues = 100;
/** Maximum number of characters of the values, each of which is bound with every key. */
const maxIndexedCharacters = 20_000;

/**
 * The skip indexes on values, which can differ between the stored rows of a run. The index on trace ids is not listed:
 * all rows of a run have the same trace id, so it excludes all of them or none.
 */
const valueIndexes = ['by_name', 'by_tag', 'by_metadata'] as const;

export interface IndexedCondition {
  readonly sql: string;
  readonly index: (typeof valueIndexes)[number];
}

/** Returns the settings of a query that may use the index of `indexed`, and no other index on values. */
export function ignoreOtherIndexes(indexed: IndexedCondition | undefined): { ignore_data_skipping_indices: string } {
  return { ignore_data_skipping_indices: valueIndexes.filter((index) => index !== indexed?.index).join() };
}

/** Writes the condition that a skip index evaluates; returns undefined if no index helps. */
export function writeIndexedCondition(
  conditions: readonly RunCondition[],
  context: FilterContext,
): IndexedCondition | undefined {
  for (const group of generateGroups(conditions)) {
    const pair = findMetadataPair(group);
    if (pair) return writeMetadata(pair, context);
  }
  const comparisons = [...generateRequiredConditions(conditions)].filter((each) => each.kind === 'compare');
  const find = (field: RunComparison['field']) =>
    comparisons
      .filter((comparison) => comparison.field === field)
      .map(listTexts)
      .find((texts) => texts !== undefined && isIndexable(texts));
  const threads = find('thread_id');
  if (threads) return writeMetadata({ keys: threadKeys, values: threads }, context);
  const tags = find('tags');
  if (tags) {
    const source = { column: 'tags', empty: '[]', indexed: indexedTags };
    return { index: 'by_tag', sql: writeTokenCondition(source, tags, tags, context) };
  }
  const names = find('name');
  // A run without a name is returned with an empty name, which is not in the index.
  if (!names?.every((name) => name !== '')) return undefined;
  return { index: 'by_name', sql: `name IN ${context.bind('Array(String)', names)}` };
}

function writeMetadata({ keys, values }: MetadataPair, context: FilterContext): IndexedCondition {
  const source = { column: 'extra', empty: '{}', indexed: indexedMetadata };
  return { index: 'by_metadata', sql: writeTokenCondition(source, values, listTokens(keys, values), context) };
}

/**
 * Writes the condition on the index tokens and, if possible, a search for the strings in the JSON text. JSON text
 * without a backslash contains each of its strings verbatim, and searching for them is much faster than parsing the
 * JSON. Numbers and documents are not searched for, because they can be written in several ways.
 */
function writeTokenCondition(
  { column, empty, indexed }: { readonly column: string; readonly empty: string; readonly indexed: string },
  texts: readonly string[],
  tokens: readonly string[],
  context: FilterContext,
): string {
  const text = `ifNull(${column}, '${empty}')`;
  const tokenCondition = `hasAny(${indexed}, ${context.bind('Array(String)', [...tokens, marker])})`;
  if (texts.some((each) => each === '' || /^[-\d[{]/.test(each))) return tokenCondition;
  const textCondition = `multiSearchAny(${text}, ${context.bind('Array(String)', texts)})`;
  return `(${textCondition} OR position(${text}, '\\\\') > 0) AND ${tokenCondition}`;
}

/**
 * Returns the list of texts that the comparison allows; undefined if the comparison does not limit the field to a list
 * of texts.
 */
function listTexts({ operator, value }: RunComparison): string[] | undefined {
  if (operator !== 'eq' && operator !== 'has' && operator !== 'in') return undefined;
  const values = Array.isArray(value) ? value : [value];
  // The same number can be written in several ways.
  return values.every((each) => typeof each === 'string' || typeof each === 'boolean') ? values.map(String) : undefined;
}

function isIndexable(values: readonly string[]): boolean {
  return (
    values.length <= maxIndexedValues && values.reduce((sum, value) => sum + value.length, 0) <= maxIndexedCharacters
  );
}

/**
 * Yields groups of conditions that every matching run satisfies: the terms of each required `and`, and each other
 * required condition as a group of its own.
 */
export function* generateGroups(conditions: readonly RunCondition[]): Generator<readonly RunCondition[]> {
  for (const condition of conditions) {
    if (condition.kind !== 'and') yield [condition];
    else {
      yield condition.terms;
      yield* generateGroups(condition.terms);
    }
  }
}

interface MetadataPair {
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/**
 * Finds keys and values such that every run that satisfies the group has one of the keys with one of the values.
 * Returns undefined if there are none.
 */
function findMetadataPair(group: readonly RunCondition[]): MetadataPair | undefined {
  const find = (isKey: boolean) => {
    for (const term of group) {
      if (term.kind !== 'compare' || getField(term.field).family !== 'metadata') continue;
      const texts = (getField(term.field).isKey === true) === isKey ? listTexts(term) : undefined;
      if (texts !== undefined) return texts;
    }
    return undefined;
  };
  const [keys, values] = [find(true), find(false)];
  return keys && values && isIndexable(values) ? { keys, values } : undefined;
}

/**
 * Lists the index tokens of the pairs. The index contains a scalar value with its key; for a nested value it contains
 * only the top-level key, which is a prefix of the path.
 */
function listTokens(keys: readonly string[], values: readonly string[]): string[] {
  return keys.flatMap((key) => {
    const parts = key.split('.');
    const prefixes = parts.map((_, at) => parts.slice(0, at + 1).join('.'));
    return [...values.map((value) => key + pairSeparator + value), ...prefixes.map((prefix) => prefix + marker)];
  });
}
