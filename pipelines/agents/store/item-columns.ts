import type { RequiredMetadata } from '../auth/access-filter.ts';

// Pieces of the statements on `agents.store_items`. Times are written out here, because graph code has connections of its own.

const time = (column: string) => `to_char(${column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS ${column}`;

export const itemColumns = `namespace, key, value, ${time('created_at')}, ${time('updated_at')}`;

/** What has run out is not there any more, deleted or not. */
export const live = '(expires_at IS NULL OR expires_at > now())';

/** Lists of labels go in as JSON, since Postgres has no arrays of lists of different lengths. */
export const labels = (json: string) =>
  `ARRAY(SELECT label FROM json_array_elements_text(${json}::json) WITH ORDINALITY AS labels (label, place) ORDER BY place)`;

/**
 * What an index finds a namespace by, also for accounts under row-level security: they use no index for conditions that have an array or a
 * call of this function in them. So it stands in a part of the statement of its own.
 */
export const pathOf = (namespace: string) => `agents.namespace_path(${namespace})`;

/** Conditions of a statement, with their parameters numbered as they come. */
export class Conditions {
  readonly values: unknown[];
  readonly #texts: string[] = [];

  constructor(...values: unknown[]) {
    this.values = values;
  }

  /** `$1` and so on: the place of a value. */
  bind(value: unknown): string {
    return `$${this.values.push(value)}`;
  }

  add(text: string): void {
    this.#texts.push(text);
  }

  /** Items within reach of a user, whose value, namespace and key hold `required`. Undefined: all. */
  holding(required: RequiredMetadata | undefined): void {
    if (required === undefined) return;
    const item = "(searchable || jsonb_build_object('namespace', to_jsonb(namespace), 'key', key))";
    this.add(`${item} @> ${this.bind(required)}::jsonb`);
  }

  get text(): string {
    return this.#texts.map((text) => ` AND ${text}`).join('');
  }

  /** Items below `prefix` lie together in the index. The last condition is for labels with dots, which no item has. */
  under(prefix: readonly string[]): void {
    if (prefix.length === 0) return;
    const first = this.bind(prefix);
    const path = prefix.join('.');
    // The character after the dot.
    this.add(`namespace_path >= ${this.bind(`${path}.`)} AND namespace_path < ${this.bind(`${path}/`)}`);
    this.add(`namespace[1:${prefix.length}] = ${first}::text[]`);
  }
}
