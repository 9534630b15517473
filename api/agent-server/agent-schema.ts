import { type Static, type TProperties, Type } from 'typebox';
import { optional } from '../server/formats.ts';
import { Answer } from '../server/operation.ts';

// Building blocks of the schemas of the agent server.

/**
 * An object of these fields alone. Others are ignored, and the answer names them; those in `notBuilt`, which clients know, are refused.
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

export const Limit = (most = 1_000) => optional(Type.Integer({ minimum: 1, maximum: most }));
export const Offset = () => optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }));
export const SortOrder = () => optional(words(['asc', 'desc']));

/** The id of an assistant, or of a graph, which stands for the assistant that the server made for it. */
export const AssistantParams = Type.Object({
  assistant_id: Type.String({ minLength: 1, maxLength: 1_000, description: 'Id of the assistant or of its graph.' }),
});

/** Which checkpoint. Other fields of it, such as `thread_id`, are what clients got with it, and say nothing more. */
export const Checkpoint = Type.Object({
  checkpoint_id: optional(Type.String({ maxLength: 1_000 })),
  checkpoint_ns: optional(Type.String({ maxLength: 10_000 })),
  checkpoint_map: optional(Type.Record(Type.String(), Type.String())),
});

/** What is left of a checkpoint without its nulls. */
export function checkpointOf({ checkpoint_id, checkpoint_ns, checkpoint_map }: Static<typeof Checkpoint>) {
  return {
    ...(checkpoint_id && { checkpoint_id }),
    ...(checkpoint_ns && { checkpoint_ns }),
    ...(checkpoint_map && { checkpoint_map }),
  };
}

/** What is given: null and left out mean the same. */
export function given<T extends object>(values: T): { [K in keyof T]?: NonNullable<T[K]> } {
  return Object.fromEntries(
    Object.entries(values).filter(([, value]) => value !== undefined && value !== null),
  ) as ReturnType<typeof given<T>>;
}

/** The fields that `select` names, or all. */
export function chosen<T extends object>(row: T, select: readonly string[] | null | undefined): Partial<T> {
  if (!select) return row;
  return Object.fromEntries(Object.entries(row).filter(([name]) => select.includes(name))) as Partial<T>;
}

/** A page with the total of all in `X-Pagination-Total` and, unless it is the last, the next offset in `X-Pagination-Next`. */
export function pageOf(rows: readonly object[], { total, offset }: { total: number; offset: number }): Answer {
  const next = offset + rows.length;
  const headers = {
    'x-pagination-total': String(total),
    ...(rows.length > 0 && next < total ? { 'x-pagination-next': String(next) } : {}),
  };
  return new Answer({ headers, body: rows });
}

/** An answer that is JSON text already. */
export function jsonText(text: string): Answer {
  return new Answer({ headers: { 'content-type': 'application/json; charset=utf-8' }, body: Buffer.from(text) });
}
