import { scanValue } from '../../pipelines/ingest/json/scan.ts';

/**
 * Reads a JSON body. Keys named `__proto__` become ordinary own properties, as `JSON.parse` has it. An empty body is undefined.
 *
 * @throws INVALID_UTF8, INVALID_JSON, which name the byte; TOO_DEEP.
 */
export function parseJsonBody(body: Buffer, maxDepth: number): unknown {
  if (body.length === 0) return undefined;
  // Before it is parsed: recursive code behind us must not meet a nesting that overflows its stack.
  scanValue(body, 0, body.length, { part: 'body', maxDepth });
  return JSON.parse(body.toString('utf8'));
}
