import { type Static, type TProperties, Type } from 'typebox';
import { optional } from '../server/formats.ts';
import { Answer } from '../server/operation.ts';

// Building blocks of the schemas of the agent server.

/**
 * An object with only these fields. Unknown fields are ignored and named in the response; fields in `notBuilt`, which
 * clients send but the server does not implement, are refused.
 */
export const Closed = <const T extends TProperties>(fields: T, notBuilt: readonly string[] = []) =>
  Type.Object(fields, { additionalProperties: false, ...(notBuilt.length > 0 && { 'x-not-built': notBuilt }) });

/** Any JSON value. */
export const JsonValue = (options: { description?: string } = {}) => Type.Unsafe<unknown>({ ...options });

export const words = <const W extends readonly string[]>(list: W, options: { default?: W[number] } = {}) =>
  Type.Unsafe<W[number]>(
    Type.Union(
      list.map((word) => Type.Literal(word)),
      options,
    ),
  );

export const Limit = (maximum = 1_000) => optional(Type.Integer({ minimum: 1, maximum }));
export const Offset = () => optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }));
export const SortOrder = () => optional(words(['asc', 'desc']));

/** The id of an assistant, or the id of a graph, which means the assistant that the server created for it. */
export const AssistantParams = Type.Object({
  assistant_id: Type.String({ minLength: 1, maxLength: 1_000, description: 'Id of the assistant or of its graph.' }),
});

/** Identifies a checkpoint. Clients send it back as they received it; other fields, such as `thread_id`, are ignored. */
export const Checkpoint = Type.Object({
  checkpoint_id: optional(Type.String({ maxLength: 1_000 })),
  checkpoint_ns: optional(Type.String({ maxLength: 10_000 })),
  checkpoint_map: optional(Type.Record(Type.String(), Type.String())),
});

/** Removes null fields from a checkpoint. */
export function withoutNullFields({ checkpoint_id, checkpoint_ns, checkpoint_map }: Static<typeof Checkpoint>) {
  return {
    ...(checkpoint_id && { checkpoint_id }),
    ...(checkpoint_ns && { checkpoint_ns }),
    ...(checkpoint_map && { checkpoint_map }),
  };
}

/** Removes fields that are null or undefined, which mean the same. */
export function given<T extends object>(values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== undefined && value !== null),
  ) as ReturnType<typeof given<T>>;
}

/** Returns the fields in `select`, or all fields without `select`. */
export function selectFields<T extends object>(row: T, select: readonly string[] | null | undefined): Partial<T> {
  if (!select) return row;
  return Object.fromEntries(Object.entries(row).filter(([name]) => select.includes(name))) as Partial<T>;
}

/**
 * Builds the response for a page: `X-Pagination-Total` is the total of all pages, `X-Pagination-Next` the next offset
 * (absent on the last page).
 */
export function buildPage(rows: readonly object[], { total, offset }: { total: number; offset: number }): Answer {
  const next = offset + rows.length;
  const headers = {
    'x-pagination-total': String(total),
    ...(rows.length > 0 && next < total ? { 'x-pagination-next': String(next) } : {}),
  };
  return new Answer({ headers, body: rows });
}

/** Builds a response from JSON text. */
export function jsonText(text: string): Answer {
  return new Answer({ headers: { 'content-type': 'application/json; charset=utf-8' }, body: Buffer.from(text) });
}
