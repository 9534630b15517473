import type { RequiredMetadata } from '../auth/access-filter.ts';

// SQL fragments for `agents.store_items`. They format times themselves, because connections of graph code do not have
// Runlake's parsers.

const time = (column: string) => `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS ${column}`;

export const itemColumns = `namespace, key, value, ${time('created_at')}, ${time('updated_at')}`;

/** Condition for items that have not expired; expired rows can remain until the next sweep. */
export const live = '(expires_at IS NULL OR expires_at > now())';

/**
 * Converts a JSON list of labels to an array. Namespaces are bound as JSON, because a Postgres array cannot hold lists
 * of different lengths.
 */
export const labels = (json: string) =>
  `ARRAY(SELECT label FROM json_array_elements_text(${json}::json) WITH ORDINALITY AS labels (label, ordinality) ORDER BY ordinality)`;

/**
 * The indexed text form of a namespace. Compute it in a separate CTE: under row-level security, Postgres does not use
 * the index for a condition that contains an array or a call of this function.
 */
export const namespacePath = (namespace: string) => `agents.namespace_path(${namespace})`;

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

  /** Restricts the items to those whose value, namespace and key contain `required`. Undefined: no restriction. */
  holding(required: RequiredMetadata | undefined): void {
    if (required === undefined) return;
    const item = "(searchable || jsonb_build_object('namespace', to_jsonb(namespace), 'key', key))";
    this.add(`${item} @> ${this.bind(required)}::jsonb`);
  }

  get text(): string {
    return this.#texts.map((text) => ` AND ${text}`).join('');
  }

  /**
   * Restricts the items to those below `prefix`, a key range of the index. The condition on the array excludes matches
   * for labels with dots, which a prefix can have but no item has.
   */
  under(prefix: readonly string[]): void {
    if (prefix.length === 0) return;
    const first = this.bind(prefix);
    const path = prefix.join('.');
    // `/` is the character after the dot.
    this.add(`namespace_path >= ${this.bind(`${path}.`)} AND namespace_path < ${this.bind(`${path}/`)}`);
    this.add(`namespace[1:${prefix.length}] = ${first}::text[]`);
  }
}
