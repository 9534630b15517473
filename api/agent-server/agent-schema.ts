import { type Static, type TProperties, Type } from 'typebox';
import { Dictionary } from '../../infra/json/dictionary.ts';
import type { GraphConfig } from '../../pipelines/agents/runs/run.ts';
import { JsonObject, jsonMediaType, OneOf, optional, Uuid } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';

// Building blocks for the schemas and responses of the agent server.

/**
 * Builds the schema of an object with only these fields. The server ignores unknown fields and lists them in the
 * response (`ignored-fields.ts`). It refuses fields in `unsupportedFields`: clients send them, but the server does not
 * implement them.
 */
export const ClosedObject = <const T extends TProperties>(fields: T, unsupportedFields: readonly string[] = []) =>
  Type.Object(fields, {
    additionalProperties: false,
    ...(unsupportedFields.length > 0 && { 'x-not-built': unsupportedFields }),
  });

export const JsonValue = (options: { description?: string } = {}) => Type.Unsafe<unknown>({ ...options });

export const Limit = () => optional(Type.Integer({ minimum: 1, maximum: 1_000 }));
export const Offset = () => optional(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }));

/** Returns the fields that a search request has in addition to its filters. */
export const searchFields = <const S extends string, const F extends string>(
  sortFields: readonly S[],
  fields: readonly F[],
) => ({
  limit: Limit(),
  offset: Offset(),
  sort_by: optional(OneOf(sortFields)),
  sort_order: optional(OneOf(['asc', 'desc'])),
  select: optional(Type.Array(OneOf(fields), { description: 'Fields of the response.' })),
});

/** Returns the page and the sort order that a search requests. Default: the 10 newest rows. */
export function readSearch<S extends string>(body: {
  readonly limit?: number | null;
  readonly offset?: number | null;
  readonly sort_by?: S | null;
  readonly sort_order?: 'asc' | 'desc' | null;
}) {
  return {
    limit: body.limit ?? 10,
    offset: body.offset ?? 0,
    sortBy: body.sort_by ?? 'created_at',
    sortOrder: body.sort_order ?? 'desc',
  } as const;
}

/**
 * The id of an assistant or of a graph. The id of a graph refers to the assistant that the server created for the
 * graph.
 */
export const AssistantParams = Type.Object({
  assistant_id: Type.String({ minLength: 1, maxLength: 1_000, description: 'Id of the assistant or of its graph.' }),
});

export const ThreadParams = Type.Object({ thread_id: Uuid() });

/**
 * The configuration of an assistant or a run. It has the fields that the SDKs send; the server sets the other options
 * of the library.
 */
export const GraphConfigBody = Type.Unsafe<GraphConfig>(
  Type.Object(
    {
      tags: Type.Optional(Type.Array(Type.String())),
      metadata: Type.Optional(JsonObject()),
      recursion_limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 2_147_483_647 })),
      configurable: Type.Optional(JsonObject()),
    },
    { additionalProperties: false },
  ),
);

/**
 * Identifies a checkpoint. Clients send back the checkpoint that they received; fields that are not listed, such as
 * `thread_id`, are ignored.
 */
export const Checkpoint = Type.Object(
  {
    checkpoint_id: optional(Type.String({ maxLength: 1_000 })),
    checkpoint_ns: optional(Type.String({ maxLength: 10_000 })),
    checkpoint_map: optional(Dictionary(Type.String())),
  },
  { additionalProperties: true },
);

/** Returns the known fields of a checkpoint that are neither null nor empty. */
export function toCheckpointReference({ checkpoint_id, checkpoint_ns, checkpoint_map }: Static<typeof Checkpoint>) {
  return {
    ...(checkpoint_id && { checkpoint_id }),
    ...(checkpoint_ns && { checkpoint_ns }),
    ...(checkpoint_map && { checkpoint_map }),
  };
}

/** Returns the fields listed in `select`, or all fields if `select` is missing. */
export function selectFields<T extends object>(row: T, select: readonly string[] | null | undefined): Partial<T> {
  if (!select) return row;
  return Object.fromEntries(Object.entries(row).filter(([name]) => select.includes(name))) as Partial<T>;
}

/** Response description for operations that respond with {@link buildPage}. */
export const pageDescription =
  '`X-Pagination-Total` is the total number, `X-Pagination-Next` the next offset (absent on the last page).';

/**
 * Builds the response for one page. `X-Pagination-Total` is the number of rows on all pages. `X-Pagination-Next` is the
 * offset of the next page; it is absent on the last page.
 */
export function buildPage(rows: readonly object[], { total, offset }: { total: number; offset: number }): RawResponse {
  const nextOffset = offset + rows.length;
  const headers = {
    'x-pagination-total': String(total),
    ...(rows.length > 0 && nextOffset < total ? { 'x-pagination-next': String(nextOffset) } : {}),
  };
  return new RawResponse({ headers, body: rows });
}

/** Builds the response of a search that cannot match anything. */
export const buildEmptyPage = () => buildPage([], { total: 0, offset: 0 });

export function buildJsonResponse(text: string): RawResponse {
  return new RawResponse({ headers: { 'content-type': jsonMediaType }, body: Buffer.from(text) });
}
