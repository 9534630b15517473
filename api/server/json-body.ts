import type { Readable } from 'node:stream';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { BodyChunks } from '../../pipelines/ingest/body/body-chunks.ts';
import { scanJson } from '../../pipelines/ingest/json/scan.ts';
import type { RequestLimits } from './error-response.ts';

/**
 * Maximum nesting depth of bodies that are parsed to objects. Recursive code such as `JSON.stringify` overflows the
 * stack at a depth of about 4,000.
 */
export const maxParsedDepth = 1_000;

/**
 * Reads the whole body of a request. The server has a timeout for this.
 *
 * @param contentLength Value of the header Content-Length.
 * @throws BODY_TOO_LARGE; the error of the stream if the client disconnects.
 */
export function readJsonBody(
  stream: Readable,
  contentLength: string | undefined,
  { bytes: limitBytes, setting: limit }: RequestLimits['bodyLimit'],
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks = new BodyChunks();
    let bytes = 0;
    const rejectTooLarge = () => {
      stream.off('data', onData);
      chunks.clear();
      reject(runlakeError('BODY_TOO_LARGE', { limitBytes, limit }));
    };
    const onData = (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > limitBytes) rejectTooLarge();
      else chunks.append(chunk);
    };
    if (Number(contentLength) > limitBytes) return rejectTooLarge();
    stream
      .on('data', onData)
      .on('end', () => resolve(chunks.join()))
      .on('error', reject);
  });
}

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
