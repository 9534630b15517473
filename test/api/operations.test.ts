import { beforeAll, describe, expect, it } from 'vitest';
import { buildAgentApi } from '../../api/agent-server/agent-api.ts';
import { agentOperations } from '../../api/agent-server/operations.ts';
import { operations as mainOperations } from '../../api/main/operations.ts';
import { type CustomAccess, mainApi } from '../../api/server/api-form.ts';
import { buildServer } from '../../api/server/build-server.ts';
import { toCanonicalPath } from '../../api/server/canonical-url.ts';
import type { Services } from '../../api/server/services.ts';
import { toolOperations, toolsApi } from '../../api/tools/operations.ts';
import { loadConfig } from '../../infra/config/load.ts';
import { catalogue } from '../../infra/errors/catalogue.ts';
import { permissions } from '../../pipelines/tenants/permissions.ts';
import { forSuite } from '../for-suite.ts';
import { logger } from '../silent-logger.ts';

interface OperationDescription {
  readonly operationId: string;
  readonly summary: string;
  readonly tags: readonly string[];
  readonly security: readonly object[];
  readonly parameters?: ReadonlyArray<{ readonly in: string; readonly name: string }>;
  readonly requestBody?: object;
  readonly responses: Readonly<Record<string, { readonly content?: object }>>;
}

const { config } = loadConfig({});
const prometheus = 'text/plain; version=0.0.4; charset=utf-8';
const apis = [
  {
    name: 'main API',
    operations: mainOperations,
    form: mainApi(config),
    knownPaths: /^\/api\/v[12]\/|^\/(ready|metrics|host-oauth-callback\/\{provider_id\})$/,
    metricsTypes: [prometheus],
  },
  {
    name: 'agent server',
    operations: agentOperations,
    form: buildAgentApi(config, ''),
    knownPaths: /^\/(?!api\/)/,
    metricsTypes: [prometheus, 'application/json; charset=utf-8'],
  },
  {
    name: 'tool server',
    operations: toolOperations,
    form: toolsApi(config, {} as CustomAccess),
    knownPaths: /^\/(health|ready|metrics|mcp)$/,
    metricsTypes: [prometheus],
  },
];

describe.each(apis)('$name', ({ operations, form, knownPaths, metricsTypes }) => {
  let paths: Readonly<Record<string, Readonly<Record<string, OperationDescription>>>>;
  let description: {
    openapi: string;
    components: { schemas: { Error: { properties: { code: { enum: string[] } } } } };
  };

  const server = forSuite(() => buildServer({ config, services: {} as Services, logger, operations, form }));
  beforeAll(async () => {
    description = (await server.inject('/openapi.json')).json();
    ({ paths } = description as unknown as { paths: typeof paths });
  });

  describe.each(operations.map((operation) => [operation.operationId, operation] as const))('%s', (_, operation) => {
    const { access, schema, path, method } = operation;

    it('declares its permission and its tenant scope', () => {
      if ('public' in access) expect(access).toEqual({ public: true, tenantScope: 'none' });
      else if ('anyKey' in access) expect(access).toEqual({ anyKey: true, tenantScope: 'organization' });
      else {
        expect(permissions.map(({ name }) => name)).toContain(access.permission);
        expect(['workspace', 'organization']).toContain(access.tenantScope);
      }
    });

    it('has a schema for its response and for each path parameter', () => {
      expect(Object.keys(schema.response).length).toBeGreaterThan(0);
      for (const status of Object.keys(schema.response)) expect(status).toMatch(/^[1-5]\d\d$/);
      const names = [...path.matchAll(/:(\w+)/g)].map(([, name]) => name);
      expect(Object.keys(schema.params?.properties ?? {})).toEqual(names);
    });

    // Patterns do not match keys with line breaks; use `Dictionary`.
    it('has no pattern for the keys of objects', () =>
      expect(JSON.stringify(schema).includes('patternProperties')).toBe(false));

    it('is described once, under its canonical path', () => {
      const canonicalPathTemplate = (operation.mount === 'root' ? path : toCanonicalPath(path)).replace(
        /:(\w+)/g,
        '{$1}',
      );
      const described = paths[canonicalPathTemplate]?.[method.toLowerCase()];
      expect(described).toMatchObject({
        operationId: operation.operationId,
        summary: operation.summary,
        tags: [operation.tag],
      });
      expect(described?.security.length === 0).toBe('public' in access);
      for (const status of Object.keys(schema.response)) expect(described?.responses).toHaveProperty(status);
      expect(described?.requestBody !== undefined).toBe(Boolean(schema.body ?? operation.rawBody));
    });
  });

  describe('all operations', () => {
    it('have unique ids and paths', () => {
      const ids = operations.map(({ operationId }) => operationId);
      expect(new Set(ids).size).toBe(ids.length);
      const routes = operations.flatMap(({ method, path, aliases = [] }) =>
        [path, ...aliases].map((each) => `${method} ${each.replace(/:\w+/g, ':')}`),
      );
      expect(new Set(routes).size).toBe(routes.length);
    });

    it('are exactly the described operations', () => {
      const described = Object.values(paths).flatMap((path) =>
        Object.values(path).map(({ operationId }) => operationId),
      );
      expect(described.sort()).toEqual(operations.map(({ operationId }) => operationId).sort());
      expect(Object.keys(paths).filter((path) => !knownPaths.test(path))).toEqual([]);
    });

    it('respond with errors of the catalogue, which the description lists', () => {
      expect(description.openapi).toBe('3.1.0');
      expect(description.components.schemas.Error.properties.code.enum.sort()).toEqual(Object.keys(catalogue).sort());
      for (const { errors = [] } of operations) for (const code of errors) expect(catalogue).toHaveProperty(code);
    });

    it('describe the types of metrics, and the 406 of MCP', () => {
      const listMediaTypes = (path: string, method: string, status: number) =>
        Object.keys(paths[path]?.[method]?.responses[status]?.content ?? {});
      expect(listMediaTypes('/metrics', 'get', 200)).toEqual(metricsTypes);
      expect(listMediaTypes('/mcp', 'post', 406)).toEqual(operations === mainOperations ? [] : ['application/json']);
    });

    it('are shown on the documentation page', async () => {
      expect((await server.inject('/docs')).statusCode).toBe(200);
      expect((await server.inject('/docs/')).statusCode).toBe(200);
      expect((await server.inject('/docs/static/swagger-ui.css')).statusCode).toBe(200);
    });
  });
});
