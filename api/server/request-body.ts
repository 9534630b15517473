/** Reads the bodies of requests: JSON that Fastify passes to handlers, and the raw bodies of operations with `rawBody`. */
import type { Readable } from 'node:stream';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Static, TSchema } from 'typebox';
import type { Config } from '../../infra/config/settings.ts';
import { isRunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { parsePartlyMarkedJson } from '../../infra/json/marked-json.ts';
import {
  type BodyBudget,
  type BodyMemory,
  type BodyShare,
  getBodyBudget,
  ParsedValues,
} from '../../pipelines/ingest/body/body-budget.ts';
import { BodyChunks } from '../../pipelines/ingest/body/body-chunks.ts';
import { collectBody } from '../../pipelines/ingest/body/collect.ts';
import { readWithNonFinite } from '../../pipelines/ingest/json/non-finite.ts';
import { scanJson } from '../../pipelines/ingest/json/scan.ts';
import type { WorkspaceCaller } from '../../pipelines/tenants/caller.ts';
import type { ApiProfile } from './api-form.ts';
import type { RequestLimits } from './error-response.ts';
import { compileValidator } from './schema-check.ts';
import type { Services } from './services.ts';

const jsonTypePattern = /^application\/(?:[\w.-]+\+)?json\b/i;

/**
 * Maximum nesting depth of bodies that are parsed to objects. Recursive code such as `JSON.stringify` overflows the
 * stack at a depth of about 4,000.
 */
export const maxParsedDepth = 1_000;

interface JsonBodyOptions extends RequestLimits {
  /** Value of the header Content-Length. */
  readonly contentLength: string | undefined;
  readonly budget: Pick<BodyBudget, 'open'>;
  /** Whose memory the body uses; see {@link BodyBudget}. */
  readonly tenantId: string;
  /** Receives the share of the budget, which the caller closes when the body is not used anymore. */
  readonly onOpen: (share: BodyShare) => void;
}

/**
 * Reads the whole body of a request. The server has a timeout for this.
 *
 * @throws BODY_TOO_LARGE; OVERLOADED if the budget is used up; the error of the stream if the client disconnects.
 */
function readJsonBody(
  stream: Readable,
  { contentLength, bodyLimit: { bytes: maxBytes, setting: limitName }, budget, tenantId, onOpen }: JsonBodyOptions,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) => {
      stream.off('data', onData);
      chunks.clear();
      reject(error);
    };
    const share = budget.open(tenantId, fail);
    const chunks = new BodyChunks({ maxBytes, limitName, share });
    onOpen(share);
    const onData = (chunk: Buffer) => {
      try {
        chunks.append(chunk);
      } catch (error) {
        fail(error);
      }
    };
    if (Number(contentLength) > maxBytes)
      return fail(runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: limitName }));
    stream
      .on('data', onData)
      .on('end', () => {
        share.waitsForClient = false;
        resolve(chunks.join());
      })
      .on('error', reject);
  });
}

/**
 * Parses a JSON body. Keys named `__proto__` become ordinary own properties, as with `JSON.parse`. An empty body
 * results in undefined.
 *
 * @param memory Reserves memory for the values.
 * @param exactFields Paths to values whose numbers stay exact; see `marked-json.ts`.
 * @throws INVALID_UTF8 or INVALID_JSON with the byte offset; TOO_DEEP; TOO_MANY_PARTS; OVERLOADED.
 */
export function parseJsonBody(
  body: Buffer,
  maxDepth: number,
  memory?: Pick<BodyShare, 'addValue'>,
  exactFields: readonly string[] = [],
): unknown {
  if (body.length === 0) return undefined;
  const limit =
    maxDepth > maxParsedDepth
      ? { maxDepth: maxParsedDepth, limit: 'the limit of all operations except ingest' }
      : { maxDepth, limit: 'the limit of all JSON bodies' };
  const values = new ParsedValues(memory);
  scanJson(body, 0, body.length, { part: 'body', ...limit, values });
  return parsePartlyMarkedJson(body.toString('utf8'), exactFields, () => values.addCopies());
}

/**
 * Like {@link parseJsonBody}, with null in place of NaN and infinities, which Python writes.
 *
 * @throws as {@link parseJsonBody}.
 */
const parseRequestBody = (
  body: Buffer,
  maxDepth: number,
  memory: Pick<BodyShare, 'addValue' | 'take'> | undefined,
  exactFields: readonly string[] | undefined,
): unknown =>
  readWithNonFinite(
    body,
    (bytes) => parseJsonBody(bytes, maxDepth, memory, exactFields),
    (bytes) => memory?.take(bytes),
  );

/** Replaces Fastify's body parsers. Accepts only uncompressed JSON. */
export function registerJsonParser(
  server: FastifyInstance,
  { config, budget }: { readonly config: Config; readonly budget: BodyBudget },
  { acceptsAnyContentType, bodyLimit }: ApiProfile,
): void {
  // Fastify's own `parseAs` keeps each chunk as an object, which costs 200 bytes for a chunk of one byte.
  const readJson = async (request: FastifyRequest, payload: Readable) => {
    const { headers, routeOptions, caller } = request;
    const { maxBodyBytes: ownLimit, exactFields } = routeOptions.config.operation ?? {};
    const body = await readJsonBody(payload, {
      contentLength: headers['content-length'],
      bodyLimit: ownLimit === undefined ? bodyLimit : { bytes: ownLimit, setting: 'the limit of this operation' },
      budget,
      tenantId: caller?.organizationId ?? '',
      onOpen: (share) => (request.bodyShare = share),
    });
    // The texts of a large body are on the heap twice: as they are parsed, and as they are formatted again.
    if (ownLimit !== undefined && body.length > config.maxJsonBodyBytes) request.bodyShare?.takePage(2 * body.length);
    const encoding = headers['content-encoding'] ?? 'identity';
    if (encoding !== 'identity')
      throw runlakeError('UNSUPPORTED_ENCODING', { encoding: encoding.slice(0, 64), accepted: 'plain' });
    return parseRequestBody(body, config.maxJsonDepth, request.bodyShare, exactFields);
  };
  const createMediaTypeError = ({ headers }: FastifyRequest) =>
    runlakeError('UNSUPPORTED_MEDIA_TYPE', { type: headers['content-type'] ?? '', expected: 'application/json' });
  server.removeAllContentTypeParsers();
  server.addContentTypeParser(jsonTypePattern, readJson);
  if (!acceptsAnyContentType) {
    server.addContentTypeParser('*', async (request: FastifyRequest) => {
      throw createMediaTypeError(request);
    });
    return;
  }
  server.addContentTypeParser('*', async (request: FastifyRequest, payload: Readable) => {
    // A page of another origin can send such a content type with cookies and without a preflight. Browsers add `Origin`
    // to the requests of such a page.
    if (request.headers.origin !== undefined) throw createMediaTypeError(request);
    return readJson(request, payload).catch((error: unknown) => {
      throw isRunlakeError(error) && error.code === 'INVALID_JSON' ? createMediaTypeError(request) : error;
    });
  });
}

/**
 * Reads and decompresses the complete body of a request within the limits, and passes it to `work`. The bytes count
 * against the process budget of the caller's organisation from the time they arrive until `work` settles, because the
 * body stays in memory until then. `work` reserves memory before it uses much more than that of the body.
 *
 * @throws OVERLOADED if the organisation has exhausted the budget; the errors of `collectBody` and of `work`.
 */
export async function withBody<Result>(
  { request, caller }: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
  config: Config,
  work: (body: Buffer, memory: BodyMemory) => Promise<Result>,
): Promise<Result> {
  const evicted = new AbortController();
  const share = getBodyBudget(config).open(caller.organizationId, (error) => evicted.abort(error));
  try {
    const body = await collectBody(request.raw, {
      contentEncoding: request.headers['content-encoding'],
      maxBytes: config.maxBodyBytes,
      timeoutMs: config.requestTimeoutMs,
      limitName: 'RUNLAKE_MAX_BODY_BYTES',
      share,
      signal: evicted.signal,
    });
    return await work(body, share);
  } finally {
    share.close();
  }
}

/**
 * Checks that the content type is JSON. A missing Content-Type is accepted.
 *
 * @throws UNSUPPORTED_MEDIA_TYPE if the content type is not JSON.
 */
export function requireJson(request: FastifyRequest): void {
  const type = request.headers['content-type'];
  if (type === undefined || jsonTypePattern.test(type)) return;
  throw runlakeError('UNSUPPORTED_MEDIA_TYPE', { type, expected: 'application/json' });
}

/** Errors of {@link LargeJson.read}, for the operations that use it. */
export const largeJsonErrors = [
  'INVALID_REQUEST',
  'INVALID_JSON',
  'INVALID_UTF8',
  'TOO_DEEP',
  'TOO_MANY_PARTS',
] as const;

interface LargeJson<S extends TSchema> {
  /**
   * Reads and validates the body. Passes the parsed value and the original bytes to `work`. `work` can store members
   * unchanged by copying them from the bytes.
   */
  read<Result>(
    sent: { readonly request: FastifyRequest; readonly caller: WorkspaceCaller },
    services: Services,
    work: (value: Static<S>, bytes: Buffer) => Promise<Result>,
  ): Promise<Result>;
}

/** Defines a JSON body that may be larger than the limit of other operations. @throws {@link largeJsonErrors} */
export function defineLargeJson<S extends TSchema>(schema: S, maxBytes: number): LargeJson<S> {
  const check = compileValidator({ schema, method: 'POST', url: '', httpPart: 'body' });
  return {
    read: ({ request, caller }, { config }, work) => {
      requireJson(request);
      return withBody({ request, caller }, config, async (bytes, memory) => {
        if (bytes.length > maxBytes) {
          throw runlakeError('BODY_TOO_LARGE', { limitBytes: maxBytes, limit: 'the limit of this operation' });
        }
        const [parsed, valid] = readWithNonFinite(bytes, (text) => [
          parseJsonBody(text, config.maxJsonDepth, memory),
          text,
        ]);
        const checkResult = check(parsed) as { value?: unknown; error?: Error };
        if (checkResult.error) throw checkResult.error;
        return work(checkResult.value as Static<S>, valid);
      });
    },
  };
}
