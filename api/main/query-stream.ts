/**
 * Pages of queries of version 2 as server-sent events. The stock SDK reads JSON Patch operations (RFC 6902): each event
 * is a list of operations on the page. The first operation sets the whole page, so one event carries it.
 */
import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { jsonMediaType } from '../server/formats.ts';
import { RawResponse } from '../server/operation.ts';

const eventStreamType = 'text/event-stream';

/** Media types of a page, for the schema of an operation. */
export const pageMediaTypes = {
  produces: jsonMediaType,
  alsoProduces: {
    [eventStreamType]: Type.String({
      description:
        'If the header Accept names text/event-stream: an event with `[{"op": "replace", "path": "", "value": page}]`, then the event `end`.',
    }),
  },
} as const;

/**
 * Builds the response with a page: as JSON, or as server-sent events if the client asks for them. The page has been read
 * when the response starts, so errors have their own status, and a client that disconnects cancels the query.
 */
export function buildQueryResponse({ headers }: FastifyRequest, page: Buffer): RawResponse {
  if (!prefersEventStream(headers.accept)) return new RawResponse({ body: page });
  const body = Buffer.concat([
    Buffer.from('data: [{"op":"replace","path":"","value":'),
    replaceLineBreaks(page),
    Buffer.from('}]\n\nevent: end\ndata: {}\n\n'),
  ]);
  return new RawResponse({ body, headers: { 'content-type': eventStreamType, 'cache-control': 'no-cache' } });
}

/** Clients that accept both, such as those that send `*` as the type, get JSON. */
function prefersEventStream(accept = ''): boolean {
  const types = accept.split(',').map((range) => range.split(';', 1)[0]?.trim().toLowerCase());
  return types.includes(eventStreamType) && !types.includes('application/json');
}

const space = 32;
const lineBreaks = [10, 13];

/**
 * Replaces line breaks with spaces, because a line break ends a line of an event. In valid JSON, line breaks occur only
 * between tokens.
 */
function replaceLineBreaks(json: Buffer): Buffer {
  if (!lineBreaks.some((byte) => json.includes(byte))) return json;
  return Buffer.from(json.map((byte) => (lineBreaks.includes(byte) ? space : byte)));
}
