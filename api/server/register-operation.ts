import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import { getTenantContext, runForTenant, runWithMemory } from '../../infra/fairness/tenant-context.ts';
import { runAsActor } from '../../infra/postgres/actor.ts';
import { toActor } from '../../pipelines/tenants/caller.ts';
import type { Permission } from '../../pipelines/tenants/permissions.ts';
import type { AuthorisationInput, CustomAccess } from './api-form.ts';
import { ignoreUnknownNames } from './ignored-fields.ts';
import { type Access, buildRoutePath, type Operation, type OperationSchema, RawResponse } from './operation.ts';
import { convertQuery, parseQuery } from './query-string.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    operation?: Operation;
    /** Name in metrics, for a route that is not an operation. */
    metricName?: string;
  }
}

/**
 * Registers the routes of `operation`: its canonical path and its aliases. Before routing, `canonical-url.ts` handles
 * all other prefixes and the trailing slash.
 */
export function registerOperation(
  server: FastifyInstance,
  operation: Operation,
  services: object,
  ownAccess?: CustomAccess,
): void {
  const { method, schema, aliases = [] } = operation;
  const handler = operation.handler as (input: object) => Promise<unknown>;
  const customAccess = 'public' in operation.access ? undefined : ownAccess;
  const handle = (input: AuthorisationInput) =>
    customAccess ? customAccess.handle(operation, input, handler) : handler(input);
  const status = Math.min(...Object.keys(schema.response).map(Number));
  for (const path of [operation.path, ...aliases]) {
    server.route({
      method,
      url: buildRoutePath(operation, path),
      schema: buildRouteSchema(operation, path !== operation.path),
      config: { operation },
      ...buildSocketOptions(operation, services),
      preValidation: async (request, reply) => {
        if (schema.query !== undefined || operation.unsupported?.query !== undefined) {
          const values = parseQuery(request.raw.url ?? '');
          rejectUnsupported(values, operation.unsupported?.query, operation.unsupported?.flags);
          request.query = schema.query ? convertQuery(schema.query, values) : values;
        }
        rejectUnsupported(request.body, operation.unsupported?.body, operation.unsupported?.flags);
        // Custom authentication code may read the whole URL.
        ignoreUnknownNames(request, reply, operation, customAccess === undefined);
      },
      handler: async (request, reply) => {
        const { caller, params, query, body, bodyShare } = request;
        const input = { caller, params, query, body, services, request };
        // The handler holds the body until it ends, also if the client disconnects; the response does not need it.
        request.body = undefined;
        request.bodyShare = undefined;
        const work = () => (request.span ? request.span.run(() => handle(input)) : handle(input));
        const { responseMemory } = request;
        const reserve = responseMemory.reserve.bind(responseMemory);
        let result: unknown;
        try {
          result = await runWithMemory(reserve, () => runForCaller(operation, request, work));
        } finally {
          bodyShare?.close();
        }
        if (result instanceof RawResponse) return sendRawResponse(reply, result, schema.produces);
        return reply.code(status).send(result);
      },
    });
  }
}

/** Permissions of the frequent operations, which change nothing that the audit log contains. */
const frequentChanges: ReadonlySet<Permission> = new Set(['runs:write', 'agents:run']);

/**
 * Runs `handle` for the caller's organisation. The audit log names the caller as the actor of its changes. If the
 * request is read-only, its queries are cancelled when the client disconnects; if a tool sends it in this process, when
 * the call of the tool ends.
 */
function runForCaller<Result>(
  { access, method }: Operation,
  { caller, ip, disconnected }: FastifyRequest,
  handle: () => Promise<Result>,
): Promise<Result> {
  if (caller === undefined) return handle();
  const { organizationId } = caller;
  const isAudited = method !== 'GET' && !('permission' in access && frequentChanges.has(access.permission));
  const work = isAudited ? () => runAsActor(toActor(caller, ip), handle) : handle;
  if (!cancelsQueriesOnDisconnect(access)) return runForTenant({ organizationId }, work);
  return runForTenant({ organizationId, disconnected: getTenantContext()?.disconnected ?? disconnected }, work);
}

/**
 * Returns true if the queries of a request are cancelled when its client disconnects. Returns false on the agent
 * server, because its requests start runs and streams that several clients share.
 */
function cancelsQueriesOnDisconnect(access: Access): boolean {
  return 'permission' in access && access.permission.endsWith(':read') && access.permission !== 'agents:read';
}

/** Returns the route options for a WebSocket. They have an effect only after `acceptWebSockets`. */
function buildSocketOptions(operation: Operation, services: object): object {
  if (operation.socket === undefined) return {};
  const serve = operation.socket as (socket: object, input: object) => void;
  return {
    wsHandler(socket: object, request: FastifyRequest) {
      const { caller, params, query, body } = request;
      serve(socket, { caller, params, query, body, services, request });
    },
  };
}

/**
 * Returns the schema with which Fastify validates and serialises. The API description shows the same schema. A raw body
 * is described but not validated.
 */
function buildRouteSchema(operation: Operation, hide: boolean): FastifySchema {
  const { schema, summary, description, tag, operationId } = operation;
  const isJson = schema.produces === undefined;
  return {
    hide,
    operationId,
    summary,
    tags: [tag],
    ...(description === undefined ? {} : { description }),
    ...(schema.params === undefined ? {} : { params: schema.params }),
    ...(schema.query === undefined ? {} : { querystring: schema.query }),
    ...(schema.body === undefined || operation.rawBody ? {} : { body: schema.body }),
    response: isJson ? schema.response : documentResponses(schema, schema.produces),
  };
}

function documentResponses({ response, alsoProduces = {} }: OperationSchema, mediaType: string): object {
  const also = Object.fromEntries(Object.entries(alsoProduces).map(([type, schema]) => [type, { schema }]));
  return Object.fromEntries(
    Object.entries(response).map(([status, schema]) => [
      status,
      { description: 'Default Response', content: { [mediaType]: { schema }, ...also } },
    ]),
  );
}

function rejectUnsupported(values: unknown, names: readonly string[] = [], flags: readonly string[] = []): void {
  if (typeof values !== 'object' || values === null) return;
  for (const name of names) {
    const value = Object.hasOwn(values, name) ? (values as Record<string, unknown>)[name] : undefined;
    const isFalse = flags.includes(name) && /^(?:false|0|no|off)$/i.test(String(value));
    if (!isFalse && !isAbsent(value)) throw runlakeError('PARAMETER_NOT_SUPPORTED', { parameter: name });
  }
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0);
}

function sendRawResponse(reply: FastifyReply, response: RawResponse, mediaType: string | undefined): FastifyReply {
  if (mediaType !== undefined) reply.type(mediaType);
  return reply
    .code(response.status)
    .headers({ ...response.headers })
    .send(response.body);
}
