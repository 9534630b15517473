import { fault } from '../../../infra/errors/runlake-error.ts';

/** What is remembered under a key of a namespace, with the names that it has on the wire. Source: SPEC 2.10. */
export interface StoreItem {
  readonly namespace: string[];
  readonly key: string;
  readonly value: Record<string, unknown>;
  readonly created_at: string;
  readonly updated_at: string;
}

export interface FoundItem extends StoreItem {
  /** Cosine with what was asked for, -1 to 1; absent without a query, and of an item that has no text in the index. */
  readonly score?: number;
}

export interface StoreKey {
  readonly namespace: readonly string[];
  readonly key: string;
}

/** Turns texts into vectors, one each, in order. */
export type Embed = (texts: readonly string[]) => Promise<readonly (readonly number[])[]>;

/** How the store of a deployment behaves, from `store` of its langgraph.json. */
export interface StoreRules {
  /** Absent: there is no search by meaning. */
  readonly index?: {
    readonly embed: Embed;
    readonly dims: number;
    /** Paths of texts in values; `$` is the whole value. */
    readonly fields: readonly string[];
  };
  /** Minutes that an item is kept for where none are said. Absent: for ever. */
  readonly defaultTtlMinutes?: number;
  /** Whether reading an item starts its time anew, where the reader does not say. */
  readonly refreshOnRead: boolean;
}

const unusable = /[\0\p{Surrogate}]/u;

/** @throws STORE_NAMESPACE_INVALID */
export function checkNamespace(namespace: readonly string[]): void {
  const reason =
    namespace.length === 0
      ? 'it is empty'
      : namespace[0] === 'langgraph'
        ? "its first label is 'langgraph', which is reserved"
        : namespace.map(whyUnusable).find((found) => found !== undefined);
  if (reason !== undefined) throw fault('STORE_NAMESPACE_INVALID', { namespace: namespace.join('/'), reason });
}

function whyUnusable(label: unknown): string | undefined {
  if (typeof label !== 'string') return 'a label is not text';
  if (label === '') return 'a label is empty';
  if (label.includes('.')) return `the label '${label}' has a dot`;
  return unusable.test(label) ? 'a label has a NUL character or half of a character' : undefined;
}

/** @throws STORE_KEY_INVALID */
export function checkKey(key: unknown): void {
  if (typeof key !== 'string' || unusable.test(key)) throw fault('STORE_KEY_INVALID', { key: String(key) });
}
