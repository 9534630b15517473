/**
 * Conditions that follow from a filter and that the skip indexes of `runs` can evaluate. They leave granules unread, and
 * spare the evaluation of expensive conditions on most of the other rows. Each is true for every run that matches.
 */
import { fieldOf } from './fields.ts';
import type { FilterContext, RunComparison, RunCondition } from './sql-terms.ts';

/** The conditions that are not nested in `or` or `not`, which every matching run satisfies. */
export function* generateRequired(conditions: readonly RunCondition[]): Generator<RunCondition> {
  for (const condition of conditions) {
    if (condition.kind === 'and') yield* generateRequired(condition.terms);
    else yield condition;
  }
}

/** The expressions of the indexes `by_tag` and `by_metadata` in `schemas/clickhouse/0001_runs.sql`. */
const indexedTags = `if(isValidJSON(ifNull(tags, '[]')), JSONExtract(ifNull(tags, '[]'), 'Array(String)'), ['\\x01'])`;
const indexedMetadata = `if(isValidJSON(ifNull(extra, '{}')), arrayMap(pair -> if(startsWith(pair.2, '{') OR startsWith(pair.2, '['),
  concat(pair.1, '\\x01'), concat(pair.1, '\\x02', if(startsWith(pair.2, '"'), JSONExtractString(pair.2), pair.2))),
  JSONExtractKeysAndValuesRaw(ifNull(extra, '{}'), 'metadata')), ['\\x01'])`;
/** Marks JSON that ClickHouse cannot parse, and after a key a value that is not a scalar. */
const marker = '\x01';
const pairSeparator = '\x02';
const threadKeys = ['thread_id', 'session_id', 'conversation_id'];
/** More values are not worth a look at the index. */
const maxHintedValues = 100;

export function writeIndexHints(conditions: readonly RunCondition[], context: FilterContext): string[] {
  const hints: string[] = [];
  const addHint = (indexed: string, values: readonly string[] | undefined) => {
    if (values === undefined || values.length > maxHintedValues) return;
    hints.push(`hasAny(${indexed}, ${context.bind('Array(String)', [...values, marker])})`);
  };
  const addMetadataHint = ({ keys, values }: MetadataPair) => {
    if (values.length > maxHintedValues) return;
    // Text without a backslash contains the value as it is; to look for it is much faster than to parse the JSON.
    if (!values.includes('')) {
      const found = `multiSearchAny(ifNull(extra, ''), ${context.bind('Array(String)', values)})`;
      hints.push(`(${found} OR position(ifNull(extra, ''), '\\\\') > 0)`);
    }
    addHint(indexedMetadata, listTokens(keys, values));
  };
  for (const condition of generateRequired(conditions)) {
    if (condition.kind !== 'compare') continue;
    const texts = listTexts(condition);
    // A run without a name has the empty name, which the index does not know.
    if (condition.field === 'name' && texts?.every((text) => text !== '') && texts.length <= maxHintedValues)
      hints.push(`name IN ${context.bind('Array(String)', texts)}`);
    if (condition.field === 'tags') addHint(indexedTags, texts);
    if (condition.field === 'thread_id' && texts) addMetadataHint({ keys: threadKeys, values: texts });
  }
  for (const group of generateGroups(conditions)) {
    const pair = findMetadataPair(group);
    if (pair) addMetadataHint(pair);
  }
  return hints;
}

/** The texts of which the field must have one; undefined if there is no such list. */
function listTexts({ operator, value }: RunComparison): string[] | undefined {
  if (operator !== 'eq' && operator !== 'has' && operator !== 'in') return undefined;
  const values = Array.isArray(value) ? value : [value];
  // A number can be written in several ways.
  return values.every((each) => typeof each === 'string' || typeof each === 'boolean') ? values.map(String) : undefined;
}

/** The comparisons that stand in one `and`, for each `and` that every matching run satisfies. */
function* generateGroups(conditions: readonly RunCondition[]): Generator<readonly RunCondition[]> {
  for (const condition of conditions) {
    if (condition.kind !== 'and') continue;
    yield condition.terms;
    yield* generateGroups(condition.terms);
  }
}

interface MetadataPair {
  readonly keys: readonly string[];
  readonly values: readonly string[];
}

/** The keys and values, of which a run must have one pair, that the comparisons of a group demand. */
function findMetadataPair(group: readonly RunCondition[]): MetadataPair | undefined {
  const find = (isKey: boolean) => {
    for (const term of group) {
      if (term.kind !== 'compare' || fieldOf(term.field).family !== 'metadata') continue;
      const texts = (fieldOf(term.field).isKey === true) === isKey ? listTexts(term) : undefined;
      if (texts !== undefined) return texts;
    }
    return undefined;
  };
  const [keys, values] = [find(true), find(false)];
  return keys && values && { keys, values };
}

/** A value is at the key itself, or nested in the value at a key that its path begins with. */
function listTokens(keys: readonly string[], values: readonly string[]): string[] {
  return keys.flatMap((key) => {
    const parts = key.split('.');
    const prefixes = parts.map((_, at) => parts.slice(0, at + 1).join('.'));
    return [...values.map((value) => key + pairSeparator + value), ...prefixes.map((prefix) => prefix + marker)];
  });
}
