import { scanJson } from '../../pipelines/ingest/json/scan.ts';

/** Bodies that become objects may not be nested deeper: recursive code such as `JSON.stringify` ends at some 4,000 levels. */
export const maxParsedDepth = 1_000;

/**
 * Reads a JSON body. Keys named `__proto__` become ordinary own properties, as `JSON.parse` has it. An empty body is undefined.
 *
 * @throws INVALID_UTF8, INVALID_JSON, which name the byte; TOO_DEEP.
 */
export function parseJsonBody(body: Buffer, maxDepth: number): unknown {
  if (body.length === 0) return undefined;
  const limit =
    maxDepth > maxParsedDepth
      ? { maxDepth: maxParsedDepth, limit: 'the limit for all but runs that are ingested' }
      : { maxDepth, limit: 'RUNLAKE_MAX_JSON_DEPTH' };
  scanJson(body, 0, body.length, { part: 'body', ...limit });
  return JSON.parse(body.toString('utf8'));
}
