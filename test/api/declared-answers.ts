import { pipeline, Transform } from 'node:stream';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import type { FastifyInstance } from 'fastify';

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DescribedOperation>>>>;
  readonly components?: object;
}

interface DescribedOperation {
  readonly operationId?: string;
  readonly responses: Readonly<Record<string, DescribedResponse>>;
}

interface DescribedResponse {
  readonly content?: Readonly<Record<string, { readonly schema?: object }>>;
}

/** Longer bodies are not checked. */
const maxBodyBytes = 64 * 1024 * 1024;

export interface Answer {
  readonly operationId: string;
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
}

/**
 * Compares responses with an API description (OpenAPI 3.1). The returned function returns the mismatches: a status or a
 * media type that the operation does not list, or the paths in the body that do not match the schema. Times must have a
 * zone, as RFC 3339 requires.
 */
export function compareWith(description: Description): (answer: Answer) => string[] {
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  ajvFormats.default(ajv);
  ajv.addSchema(description, 'description');
  const operations = new Map<string, { pointer: string; operation: DescribedOperation }>();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const pointer = `/paths/${encodePointer(path)}/${method}`;
      if (operation.operationId !== undefined) operations.set(operation.operationId, { pointer, operation });
    }
  }
  const validators = new Map<string, ValidateFunction>();
  const validate = (pointer: string, body: string): string[] => {
    const check = validators.get(pointer) ?? ajv.compile({ $ref: `description#${encodeURI(pointer)}` });
    validators.set(pointer, check);
    let value: unknown;
    try {
      value = JSON.parse(body);
    } catch {
      return ['the body is not JSON'];
    }
    if (check(value)) return [];
    return (check.errors ?? []).slice(0, 8).map(({ instancePath, message = '' }) => `${instancePath} ${message}`);
  };
  return ({ operationId, status, contentType, body }) => {
    const found = operations.get(operationId);
    if (found === undefined) return ['the operation is not described'];
    const response = found.operation.responses[status];
    if (response === undefined) return ['the status is not described'];
    const { content } = response;
    if (content === undefined) return body === '' ? [] : ['the response is described without a body'];
    const described = Object.keys(content).find((each) =>
      ['*/*', toMediaType(contentType)].includes(toMediaType(each)),
    );
    if (described === undefined) return [`the media type '${contentType}' is not described`];
    if (!/[/+]json$/.test(toMediaType(described)) || content[described]?.schema === undefined) return [];
    return validate(`${found.pointer}/responses/${status}/content/${encodePointer(described)}/schema`, body);
  };
}

function toMediaType(contentType: string): string {
  return contentType.split(';', 1)[0]?.trim() ?? '';
}

function encodePointer(segment: string): string {
  return segment.replaceAll('~', '~0').replaceAll('/', '~1');
}

/** By the operations of a server, because preparing a comparison takes longer than most tests. */
const comparisons = new WeakMap<object, ReturnType<typeof compareWith>>();

/**
 * Compares every response of a server with the description at its `/openapi.json`. `check` throws if a response does
 * not match. Call this before the server is ready. Servers of the same `operations` have the same description.
 */
export function watchAnswers(server: FastifyInstance, operations: object = server): { check(): void } {
  const wrong = new Set<string>();
  server.addHook('onSend', async (request, reply, payload) => {
    const operationId = request.routeOptions.config.operation?.operationId;
    if (operationId === undefined) return payload;
    const { statusCode: status } = reply;
    const contentType = String(reply.getHeader('content-type') ?? '');
    const see = (body: string) => {
      const compare = comparisons.get(operations) ?? compareWith(server.swagger() as unknown as Description);
      comparisons.set(operations, compare);
      for (const found of compare({ operationId, status, contentType, body })) {
        if (wrong.size < 20) wrong.add(`${operationId} ${status}: ${found}`);
      }
    };
    if (isStream(payload)) return collect(payload, see);
    // Fastify drops the body of such a response after this hook.
    const isEmpty = status === 204 || payload === undefined || payload === null;
    see(isEmpty ? '' : String(payload));
    return payload;
  });
  return {
    check() {
      if (wrong.size > 0) throw new Error(`responses do not match /openapi.json:\n${[...wrong].join('\n')}`);
    },
  };
}

function isStream(payload: unknown): payload is NodeJS.ReadableStream {
  return typeof (payload as { pipe?: unknown } | null | undefined)?.pipe === 'function';
}

/** Forwards a stream, and calls `see` with its text when it has ended. */
function collect(stream: NodeJS.ReadableStream, see: (body: string) => void): Transform {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const countingStream = new Transform({
    transform(chunk: Buffer | string, _encoding, done) {
      bytes += chunk.length;
      if (bytes <= maxBodyBytes) chunks.push(Buffer.from(chunk));
      done(null, chunk);
    },
    flush(done) {
      if (bytes <= maxBodyBytes) see(Buffer.concat(chunks).toString());
      done();
    },
  });
  // An error of the stream destroys `passed`, and the client sees a broken response.
  pipeline(stream, countingStream, () => undefined);
  return countingStream;
}
