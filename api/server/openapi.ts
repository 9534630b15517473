import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyInstance, FastifyReply, FastifySchema } from 'fastify';
import type { TObject } from 'typebox';
import { catalogue } from '../../infra/errors/catalogue.ts';
import { jsonMediaType } from './formats.ts';
import type { Operation } from './operation.ts';
import { listErrors } from './operation-errors.ts';
import { getForwardedPrefix } from './public-base.ts';
import { sessionCookieName } from './session-cookie.ts';
import { handleStaticFileError } from './unserved-routes.ts';

/** First segments of the paths that {@link describeApi} serves. These paths do not start with `/api/v1`. */
export const descriptionSegments = ['docs', 'openapi.json'] as const;

/**
 * Content security policy of the documentation pages. The pages load no resources from other origins. The policy allows
 * inline styles, which Swagger UI uses, and does not upgrade plain HTTP.
 */
const contentSecurityPolicy = {
  'default-src': ["'self'"],
  'style-src': ["'self'", "'unsafe-inline'"],
  'img-src': ["'self'", 'data:'],
  'object-src': ["'none'"],
  'base-uri': ["'self'"],
  'form-action': ["'self'"],
  'frame-ancestors': ["'none'"],
};

/** General information in the description of an API. */
export interface ApiTitle {
  readonly title: string;
  readonly description: string;
  /** Whether requests may carry the session cookie of the web application instead of a key. Default: false. */
  readonly acceptsSessions?: true;
}

/**
 * Serves the API description at `/openapi.json` and documentation pages at `/docs`. Must be called before operations
 * are registered.
 */
export async function describeApi(server: FastifyInstance, about: ApiTitle): Promise<void> {
  await server.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: about.title,
        description: about.description,
        version: '1',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      components: {
        securitySchemes: {
          apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key' },
          bearer: { type: 'http', scheme: 'bearer' },
          ...(about.acceptsSessions && {
            session: {
              type: 'apiKey' as const,
              in: 'cookie' as const,
              name: sessionCookieName,
              description:
                'Set by POST /api/v1/session. At ports other than 80 and 443, `_` and the port follow the name. Requests other than GET and HEAD need `X-CSRF-Token` too.',
            },
          }),
          workspace: {
            type: 'apiKey',
            in: 'header',
            name: 'x-tenant-id',
            description: 'Id of the workspace, for keys with access to several workspaces.',
          },
        },
        schemas: { Error: buildErrorSchema(), Problem: buildProblemSchema() },
      },
    },
    transform: ({ schema, url, route }) => ({
      schema: describeOperation(schema, route.config?.operation, about),
      url,
    }),
  });
  await server.register(async (docsScope) => {
    docsScope.setErrorHandler(handleStaticFileError);
    docsScope.addHook('onRequest', async (_request, reply) => allowEveryOrigin(reply));
    await docsScope.register(swaggerUi, {
      routePrefix: '/docs',
      logLevel: 'silent',
      staticCSP: contentSecurityPolicy,
      // Disables the badge of the public validator, because it would send the URL of this server to the validator.
      uiConfig: { validatorUrl: null },
      transformSpecification: (description, request) => addServer(description, getForwardedPrefix(request)),
      transformSpecificationClone: false,
    });
  });
  let text: string | undefined;
  server.get('/openapi.json', { schema: { hide: true } }, async (request, reply) => {
    text ??= JSON.stringify(server.swagger());
    const prefix = getForwardedPrefix(request);
    allowEveryOrigin(reply);
    return reply.type(jsonMediaType).send(prefix === '' ? text : JSON.stringify(addServer(server.swagger(), prefix)));
  });
}

/** Adds the path to which pages send requests of the description. */
function addServer<Description extends object>(description: Description, prefix: string): Description {
  return prefix === '' ? description : { ...description, servers: [{ url: prefix }] };
}

/**
 * Lets pages of every origin read a response that needs no authentication. The pages of a deployment have the origin
 * `null`, see `api/control-plane/proxy-headers.ts`.
 */
function allowEveryOrigin(reply: FastifyReply): void {
  if (!reply.hasHeader('access-control-allow-origin')) reply.header('access-control-allow-origin', '*');
}

/** Adds the security, the raw body, the errors and the notes of an operation to its Fastify schema. */
function describeOperation(
  schema: FastifySchema | undefined,
  operation: Operation | undefined,
  about: ApiTitle,
): FastifySchema {
  if (operation === undefined) return { ...schema, hide: true };
  const { access, rawBody, unsupported, description } = operation;
  const notes = [
    description,
    'permission' in access ? `Needs the permission \`${access.permission}\`.` : undefined,
    unsupported && `Not supported yet: ${[...(unsupported.query ?? []), ...(unsupported.body ?? [])].join(', ')}.`,
  ].filter((note) => note !== undefined);
  return {
    ...schema,
    ...(operation.schema.query && { querystring: removeDefaultsFromRequired(operation.schema.query) }),
    description: notes.join('\n\n'),
    security:
      'public' in access
        ? []
        : [
            { apiKey: [] },
            { bearer: [] },
            { apiKey: [], workspace: [] },
            ...(about.acceptsSessions ? [{ session: [] }] : []),
          ],
    ...(rawBody && {
      body: {
        description: rawBody.description,
        content: Object.fromEntries(rawBody.contentTypes.map((type) => [type, { schema: {} }])),
      },
    }),
    response: {
      ...(schema?.response as object),
      ...buildErrorResponses(operation, schema?.response as Responses, about),
    },
  };
}

/**
 * Removes parameters with a default from the required parameters. Clients may omit these parameters, because the server
 * sets the defaults before validation.
 */
function removeDefaultsFromRequired(query: TObject): object {
  const required = (query.required ?? []).filter((name) => !('default' in (query.properties[name] ?? {})));
  return { ...query, required };
}

type Responses = Readonly<Record<string, { readonly content?: object } | undefined>> | undefined;

/**
 * Builds the error responses by status. Each response lists the error codes, which `docs/reference/errors.md` explains.
 *
 * @param own Responses of the operation, which may have an error status too, for example for a page.
 */
function buildErrorResponses(operation: Operation, own: Responses, about: ApiTitle): object {
  const errors = listErrors(operation, about);
  const schema = operation.errorStyle === 'problem' ? 'Problem' : 'Error';
  const content: Record<string, object> = {
    [operation.errorStyle === 'problem' ? 'application/problem+json' : 'application/json']: {
      schema: { $ref: `#/components/schemas/${schema}` },
    },
  };
  if (operation.errorStyle === 'otlp') content['application/x-protobuf'] = { schema: {} };
  const statuses = new Set(errors.map((code) => catalogue[code].status));
  return Object.fromEntries(
    [...statuses].map((status) => {
      const codes = errors.filter((code) => catalogue[code].status === status);
      return [status, { description: codes.join(', '), content: { ...own?.[status]?.content, ...content } }];
    }),
  );
}

const fieldErrors = {
  type: 'array',
  items: {
    type: 'object',
    required: ['loc', 'msg', 'type'],
    properties: {
      loc: { type: 'array', items: { anyOf: [{ type: 'string' }, { type: 'integer' }] } },
      msg: { type: 'string' },
      type: { type: 'string' },
    },
  },
} as const;

const commonErrorFields = {
  code: { type: 'string', enum: Object.keys(catalogue) },
  remedy: { type: 'string' },
  request_id: { type: 'string' },
} as const;

function buildProblemSchema(): object {
  return {
    type: 'object',
    description: 'Problem details (RFC 9457).',
    properties: {
      type: { type: 'string' },
      title: { type: 'string' },
      status: { type: 'integer' },
      detail: { type: 'string' },
      instance: { type: 'string' },
      errors: { ...fieldErrors, description: 'Fields of the request that are invalid.' },
      error: { type: 'string' },
      ...commonErrorFields,
    },
  };
}

function buildErrorSchema(): object {
  return {
    type: 'object',
    description:
      'Ingest operations use `error` in place of `detail`. The OTLP operation returns google.rpc.Status, encoded like the request.',
    properties: {
      detail: {
        anyOf: [{ type: 'string' }, fieldErrors],
      },
      message: { type: 'string', description: 'The list in `detail` as one text.' },
      error: { type: 'string' },
      ...commonErrorFields,
    },
  };
}
