import { scanJson } from '../../pipelines/ingest/json/scan.ts';

/**
 * Maximum nesting depth of bodies that are parsed to objects. Recursive code such as `JSON.stringify` overflows the
 * stack at a depth of about 4,000.
 */
export const maxParsedDepth = 1_000;

/**
 * Parses a JSON body. Keys named `__proto__` become ordinary own properties, as with `JSON.parse`. An empty body
 * results in undefined.
 *
 * @throws INVALID_UTF8 or INVALID_JSON with the byte offset; TOO_DEEP.
 */
export function parseJsonBody(body: Buffer, maxDepth: number): unknown {
  if (body.length === 0) return undefined;
  const limit =
    maxDepth > maxParsedDepth
      ? { maxDepth: maxParsedDepth, limit: 'the limit of all operations except ingest' }
      : { maxDepth, limit: 'the limit of all JSON bodies' };
  scanJson(body, 0, body.length, { part: 'body', ...limit });
  return JSON.parse(body.toString('utf8'));
}
