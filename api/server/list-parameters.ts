import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { isJsonObject, type JsonObject } from '../../infra/json/json-value.ts';
import { parseMarkedJson } from '../../infra/json/marked-json.ts';
import type { Page } from '../../infra/postgres/list-page.ts';
import { optional, Uuid } from './formats.ts';
import { RawResponse } from './operation.ts';
import { maxParsedDepth, parseJsonBody } from './request-body.ts';

/** Parameters of lists that are paged by offset. */
export const pageParameters = {
  limit: Type.Integer({ minimum: 1, maximum: 100, default: 100 }),
  offset: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
};

/** Parameters that restrict a list to resources with these ids or names. */
export const nameParameters = {
  id: Type.Optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  name: Type.Optional(Type.String()),
  name_contains: Type.Optional(Type.String({ description: 'Case-insensitive.' })),
};

/**
 * Whether a request for a list looks up the resource with an empty name, which does not exist. Empty parameters count as
 * absent, but SDKs that are given an empty name take the first item of the list, for example to delete it. Their requests for
 * lists have an offset.
 */
export function looksUpEmptyName({ raw }: FastifyRequest): boolean {
  const [, query] = /\?(.*)$/.exec(raw.url ?? '') ?? [];
  const parameters = new URLSearchParams(query);
  return parameters.get('name') === '' && !parameters.has('offset');
}

export const tagValueParameter = Type.Optional(
  Type.Array(Uuid(), { maxItems: 100, description: 'Only those that have all of these tag values.' }),
);

/** Field in the body of operations that create a resource. */
export const newTagsField = optional(
  Type.Array(Uuid(), { maxItems: 100, description: 'Tag values of the resource; needs the permission `tags:manage`.' }),
);

export const cursorParameter = Type.Optional(Type.String({ description: '`next_cursor` of the previous page.' }));

/** Encodes the cursor of a page that starts at an offset. */
export const writeOffset = (offset: number) => Buffer.from(`offset ${offset}`).toString('base64url');

/** Decodes {@link cursorParameter}. @throws BAD_REQUEST */
export function readOffset(cursor: string | undefined): number {
  if (!cursor) return 0;
  const [, offset] = /^offset (\d{1,9})$/.exec(Buffer.from(cursor, 'base64url').toString()) ?? [];
  if (offset === undefined) throw runlakeError('BAD_REQUEST', { reason: 'The cursor is malformed.' });
  return Number(offset);
}

export const metadataParameter = Type.Optional(
  Type.String({ description: 'A JSON object. Only items whose metadata contains all of its pairs.' }),
);

/** Parses {@link metadataParameter}. @throws INVALID_REQUEST if the text is not a JSON object, or too deep. */
export function parseMetadata(text: string | undefined): JsonObject | undefined {
  if (text === undefined) return undefined;
  try {
    const value = parseJsonBody(Buffer.from(text), maxParsedDepth);
    if (isJsonObject(value)) return parseMarkedJson(text) as JsonObject;
  } catch {
    // Invalid and too deep JSON has the same error as JSON that is not an object.
  }
  const field = {
    loc: ['query', 'metadata'],
    msg: `must be a JSON object of at most ${maxParsedDepth} levels`,
    type: 'json_object',
  };
  throw runlakeError('INVALID_REQUEST', {}, { fields: [field] });
}

/** Builds the response of a list: the rows of the page, and the total number of rows in `X-Pagination-Total`. */
export function buildPageResponse<Row extends object>({ rows, total }: Page<Row>): RawResponse {
  return new RawResponse({ headers: { 'x-pagination-total': String(total) }, body: [...rows] });
}
