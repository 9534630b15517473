import { runlakeError } from '../../../infra/errors/runlake-error.ts';

/** An item of the store, with its field names on the wire. Source: SPEC 2.10. */
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
export type Embed = (texts: readonly string[]) => Promise<readonly (readonly number[])[]>;

/** Settings of a deployment's store, from `store` of its langgraph.json. */
export interface StoreRules {
  /** Absent: no similarity search. */
  readonly index?: {
    readonly embed: Embed;
    readonly dims: number;
    /** Paths of the indexed texts in values; `$` is the whole value. */
    readonly fields: readonly string[];
  };
  /** TTL in minutes of items that set none. Absent: they do not expire. */
  readonly defaultTtlMinutes?: number;
  /** Whether reads restart the TTL of an item unless they say otherwise. */
  readonly refreshOnRead: boolean;
}

const unusable = /[\0\p{Surrogate}]/u;

/** Validates a namespace. @throws STORE_NAMESPACE_INVALID with the reason. */
export function checkNamespace(namespace: readonly string[]): void {
  const reason =
    namespace.length === 0
      ? 'it is empty'
      : namespace[0] === 'langgraph'
        ? "its first label is 'langgraph', which is reserved"
        : namespace.map(findFlaw).find((found) => found !== undefined);
  if (reason !== undefined) throw runlakeError('STORE_NAMESPACE_INVALID', { namespace: namespace.join('/'), reason });
}

function findFlaw(label: unknown): string | undefined {
  if (typeof label !== 'string') return 'a label is not text';
  if (label === '') return 'a label is empty';
  if (label.includes('.')) return `the label '${label}' has a dot`;
  return unusable.test(label) ? 'a label has a NUL character or a lone surrogate' : undefined;
}

/** Validates the key of an item. @throws STORE_KEY_INVALID */
export function checkKey(key: unknown): void {
  if (typeof key !== 'string' || unusable.test(key)) throw runlakeError('STORE_KEY_INVALID', { key: String(key) });
}
