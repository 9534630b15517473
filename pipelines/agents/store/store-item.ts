import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { RequiredMetadata } from '../auth/access-filter.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';

/** An item of the store, with its field names on the wire. Source: LangGraph Platform API, Item. */
export interface StoreItem {
  readonly namespace: string[];
  readonly key: string;
  readonly value: Record<string, unknown>;
  readonly created_at: string;
  readonly updated_at: string;
}

export interface FoundItem extends StoreItem {
  /** Cosine similarity to the query, -1 to 1. Absent without a query, or if the item has no indexed text. */
  readonly score?: number;
}

export interface StoreKey {
  readonly namespace: readonly string[];
  readonly key: string;
}

/** Computes one vector for each text, in the same order. */
export type Embedder = (texts: readonly string[]) => Promise<readonly (readonly number[])[]>;

/** Settings of a deployment's store, from `store` of its langgraph.json. */
export interface StoreConfig {
  /** Settings of similarity search. If absent, the store has no similarity search. */
  readonly index?: {
    readonly embed: Embedder;
    readonly dims: number;
    /** Paths of the indexed texts in values; `$` is the whole value. */
    readonly fields: readonly string[];
  };
  /** TTL in minutes of items without their own TTL. If absent, such items do not expire. */
  readonly defaultTtlMinutes?: number;
  /** Default of `refresh_ttl`: whether reads restart the TTL of an item. */
  readonly refreshOnRead: boolean;
}

const unstorableCharacters = /[\0\p{Surrogate}]/u;

/** Validates a namespace. @throws STORE_NAMESPACE_INVALID with the reason. */
export function checkNamespace(namespace: readonly string[]): void {
  const reason =
    namespace.length === 0
      ? 'it is empty'
      : namespace[0] === 'langgraph'
        ? "its first label is 'langgraph', which is reserved"
        : namespace.map(findLabelFlaw).find((found) => found !== undefined);
  if (reason !== undefined) throw runlakeError('STORE_NAMESPACE_INVALID', { namespace: namespace.join('/'), reason });
}

function findLabelFlaw(label: unknown): string | undefined {
  if (typeof label !== 'string') return 'a label is not text';
  if (label === '') return 'a label is empty';
  if (label.includes('.')) return `the label '${label}' has a dot`;
  return unstorableCharacters.test(label) ? 'a label has a NUL character or a lone surrogate' : undefined;
}

/** Validates the key of an item. @throws STORE_KEY_INVALID */
export function checkKey(key: unknown): void {
  if (typeof key === 'string' && !unstorableCharacters.test(key)) return;
  const reason = typeof key === 'string' ? 'it has a NUL character or a lone surrogate' : 'it is not text';
  throw runlakeError('STORE_KEY_INVALID', { key: String(key).slice(0, 100), reason });
}

/**
 * Builds the configuration from `store` of a langgraph.json. The store has an index only if the file configures one and
 * `embed` is given.
 */
export function buildStoreConfig({ index, ttl = {} }: GraphsFile['store'], embed: Embedder | undefined): StoreConfig {
  const { default_ttl: defaultTtlMinutes, refresh_on_read: refreshOnRead = true } = ttl;
  return {
    ...(index && embed && { index: { embed, dims: index.dims, fields: index.fields ?? ['$'] } }),
    ...(defaultTtlMinutes !== undefined && { defaultTtlMinutes }),
    refreshOnRead,
  };
}

// SQL fragments for `agents.store_items`. They format times themselves, because connections of graph code do not have
// Runlake's parsers.

const buildTimeColumnSql = (column: string) =>
  `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS ${column}`;

export const itemColumns = `namespace, key, value, ${buildTimeColumnSql('created_at')}, ${buildTimeColumnSql('updated_at')}`;

/** Condition for items that have not expired; expired rows can remain until the next sweep. */
export const notExpiredCondition = '(expires_at IS NULL OR expires_at > now())';

/**
 * SQL: `labels_json`, a JSON list of labels, as an array. Namespaces are bound as JSON, because a Postgres array cannot
 * hold lists of different lengths.
 */
export const labelsSql = `ARRAY(SELECT label FROM json_array_elements_text(labels_json::json) WITH ORDINALITY AS labels (label, ordinality) ORDER BY ordinality)`;

/**
 * SQL: the indexed text form of `namespace`. Compute the text form in a separate CTE: under row-level security, Postgres
 * does not use the index for a condition that contains an array or a call of this function.
 */
export const namespacePathSql = 'agents.namespace_path(namespace)';

/** Collects the conditions and parameters of a statement. */
export class Conditions {
  readonly values: unknown[];
  readonly #texts: string[] = [];

  constructor(...values: unknown[]) {
    this.values = values;
  }

  /** Adds a parameter. @returns its placeholder, such as `$1`. */
  bind(value: unknown): string {
    return `$${this.values.push(value)}`;
  }

  add(text: string): void {
    this.#texts.push(text);
  }

  /**
   * Restricts the items to those whose value, namespace and key contain `required`. Does nothing if `required` is
   * undefined.
   */
  requireMembers(required: RequiredMetadata | undefined): void {
    if (required === undefined) return;
    const item = "(searchable || jsonb_build_object('namespace', to_jsonb(namespace), 'key', key))";
    this.add(`${item} @> ${this.bind(required)}::jsonb`);
  }

  get text(): string {
    return this.#texts.map((text) => ` AND ${text}`).join('');
  }

  /**
   * Restricts the items to namespaces below `prefix`. The range on the text uses the index. The array condition rejects
   * false matches, because a label in `prefix` may contain a dot and a label of a stored namespace may not.
   */
  restrictToPrefix(prefix: readonly string[]): void {
    if (prefix.length === 0) return;
    const first = this.bind(prefix);
    const path = prefix.join('.');
    // In ASCII, `/` is the character after the dot.
    this.add(`namespace_path >= ${this.bind(`${path}.`)} AND namespace_path < ${this.bind(`${path}/`)}`);
    this.add(`namespace[1:${prefix.length}] = ${first}::text[]`);
  }
}
