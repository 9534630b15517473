import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { fault } from '../../infra/errors/runlake-error.ts';
import { runForTenant } from '../../infra/fairness/tenant-context.ts';
import type { HandledInput, OwnAccess } from './api-form.ts';
import { canonicalPath } from './canonical-url.ts';
import { ignoreUnknownFields } from './ignored-fields.ts';
import { type Access, Answer, type Operation, type OperationSchema } from './operation.ts';
import { convertQuery, namesInQuery, parseQuery } from './query-string.ts';
import { unknownFields } from './unknown-fields.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    operation?: Operation;
  }
}

/**
 * Makes the routes of `operation`: its canonical path and its aliases. The other prefixes and the slash at the end are dealt
 * with before routing, see `canonical-url.ts`.
 */
export function registerOperation(
  server: FastifyInstance,
  operation: Operation,
  services: object,
  ownAccess?: OwnAccess,
): void {
  const { method, schema, aliases = [] } = operation;
  const handler = operation.handler as (input: object) => Promise<unknown>;
  const ruled = 'public' in operation.access ? undefined : ownAccess;
  const handle = (input: HandledInput) => (ruled ? ruled.handle(operation, input, handler) : handler(input));
  const status = successStatus(operation);
  for (const path of [operation.path, ...aliases]) {
    server.route({
      method,
      url: routedPath(operation, path),
      schema: routeSchema(operation, path !== operation.path),
      config: { operation },
      ...socketOf(operation, services),
      preValidation: async (request, reply) => {
        const closed = operation.closedQuery && !ruled;
        if (closed || schema.query !== undefined || operation.unsupported?.query !== undefined) {
          const values = parseQuery(request.raw.url ?? '');
          if (closed) refuseOthers(namesInQuery(request.raw.url ?? ''), schema.query?.properties);
          refuseUnsupported(values, operation.unsupported?.query, operation.unsupported?.flags);
          request.query = schema.query ? convertQuery(schema.query, values) : values;
        }
        refuseUnsupported(request.body, operation.unsupported?.body, operation.unsupported?.flags);
        if (operation.ignoresUnknownFields) ignoreUnknownFields(request, reply, schema.body, operation.operationId);
      },
      handler: async (request, reply) => {
        const { caller, params, query, body } = request;
        const input = { caller, params, query, body, services, request };
        const work = () => (request.span ? request.span.run(() => handle(input)) : handle(input));
        const result = await forTenant(operation, request, reply, work);
        if (result instanceof Answer) return sendAnswer(reply, result, schema.produces);
        return reply.code(status).send(result);
      },
    });
  }
}

/** Runs `work` for the caller's organisation. Queries of a request that only reads end when its client disconnects. */
function forTenant<Result>(
  { access }: Operation,
  { caller }: FastifyRequest,
  { raw: response }: FastifyReply,
  work: () => Promise<Result>,
): Promise<Result> {
  if (caller === undefined) return work();
  const { organizationId } = caller;
  if (!readsForItsClientAlone(access)) return runForTenant({ organizationId }, work);
  const disconnected = new AbortController();
  response.once('close', () => {
    if (response.writableFinished) return;
    disconnected.abort(fault('BAD_REQUEST', { reason: 'The client disconnected before the answer was complete.' }));
  });
  return runForTenant({ organizationId, disconnected: disconnected.signal }, work);
}

/** Requests to the agent server may start shared work: runs, and streams that several clients follow. */
function readsForItsClientAlone(access: Access): boolean {
  return !('public' in access) && access.permission.endsWith(':read') && access.permission !== 'agents:read';
}

/** How a WebSocket is served; only where the plugin for it is there, see `web-sockets.ts`. */
function socketOf(operation: Operation, services: object): object {
  if (operation.socket === undefined) return {};
  const serve = operation.socket as (socket: object, input: object) => void;
  return {
    wsHandler(socket: object, request: FastifyRequest) {
      const { caller, params, query, body } = request;
      serve(socket, { caller, params, query, body, services, request });
    },
  };
}

/** For each path answers 405 to the methods that no operation has, and says which there are. */
export function refuseOtherMethods(server: FastifyInstance, operations: readonly Operation[]): void {
  const methodsByPath = new Map<string, Set<string>>();
  for (const operation of operations) {
    for (const path of [operation.path, ...(operation.aliases ?? [])]) {
      const routed = routedPath(operation, path);
      const shape = shapeOf(routed);
      const methods = methodsByPath.get(shape) ?? new Set();
      methods.add(operation.method);
      if (operation.method === 'GET') methods.add('HEAD');
      methodsByPath.set(shape, methods);
    }
  }
  for (const [url, methods] of methodsByPath) {
    const others = server.supportedMethods.filter((method) => !methods.has(method));
    const allow = [...methods].join(', ');
    server.route({
      method: others,
      url,
      schema: { hide: true },
      // Before the body is read, so that its type and size do not matter.
      onRequest: async (request, reply) => {
        reply.header('allow', allow);
        throw fault('METHOD_NOT_ALLOWED', { method: request.method, path: pathOf(request.originalUrl) });
      },
      handler: async () => undefined,
    });
  }
}

/** The path of a URL, without its query, which may hold what is not for others. */
export function pathOf(url: string): string {
  return url.split('?', 1)[0] ?? url;
}

/** Routes that differ only in the names of their parameters are one route. */
export function shapeOf(routed: string): string {
  return routed.replace(/:[^/]+/g, ':id');
}

export function routedPath(operation: Operation, path: string): string {
  return operation.mount === 'root' ? path : canonicalPath(path);
}

function successStatus({ schema }: Operation): number {
  return Math.min(...Object.keys(schema.response).map(Number));
}

/** What Fastify checks and serialises with, and what the API description shows. A raw body is only described. */
function routeSchema(operation: Operation, hide: boolean): FastifySchema {
  const { schema, summary, description, tag, operationId } = operation;
  const json = schema.produces === undefined;
  return {
    hide,
    operationId,
    summary,
    tags: [tag],
    ...(description === undefined ? {} : { description }),
    ...(schema.params === undefined ? {} : { params: schema.params }),
    ...(schema.query === undefined ? {} : { querystring: schema.query }),
    ...(schema.body === undefined || operation.rawBody ? {} : { body: schema.body }),
    response: json ? schema.response : describedOnly(schema, schema.produces),
  };
}

function describedOnly({ response, alsoProduces = {} }: OperationSchema, mediaType: string): object {
  const also = Object.fromEntries(Object.entries(alsoProduces).map(([type, schema]) => [type, { schema }]));
  return Object.fromEntries(
    Object.entries(response).map(([status, schema]) => [
      status,
      { description: 'Default Response', content: { [mediaType]: { schema }, ...also } },
    ]),
  );
}

function refuseOthers(names: readonly string[], known: object = {}): void {
  const others = names.filter((name) => !Object.hasOwn(known, name));
  if (others.length > 0) throw unknownFields('query', others);
}

function refuseUnsupported(values: unknown, names: readonly string[] = [], flags: readonly string[] = []): void {
  if (typeof values !== 'object' || values === null) return;
  for (const name of names) {
    const value = Object.hasOwn(values, name) ? (values as Record<string, unknown>)[name] : undefined;
    const isNo = flags.includes(name) && /^(?:false|0|no|off)$/i.test(String(value));
    if (!isNo && !isAbsent(value)) throw fault('PARAMETER_NOT_SUPPORTED', { parameter: name });
  }
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0);
}

function sendAnswer(reply: FastifyReply, answer: Answer, mediaType: string | undefined): FastifyReply {
  if (mediaType !== undefined) reply.type(mediaType);
  return reply
    .code(answer.status)
    .headers({ ...answer.headers })
    .send(answer.body);
}
