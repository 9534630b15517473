import { describe, expect, it } from 'vitest';
import { buildAgentApi } from '../../../api/agent-server/agent-api.ts';
import { agentOperations } from '../../../api/agent-server/operations.ts';
import { operations as mainOperations } from '../../../api/main/operations.ts';
import { mainApi } from '../../../api/server/api-form.ts';
import { buildServer } from '../../../api/server/build-server.ts';
import type { Services } from '../../../api/server/services.ts';
import { loadConfig } from '../../../infra/config/load.ts';
import { forSuite } from '../../for-suite.ts';
import { logger } from '../../silent-logger.ts';

const { config } = loadConfig({});

describe.each([
  { name: 'main API', operations: mainOperations, form: mainApi(config) },
  { name: 'agent server', operations: agentOperations, form: buildAgentApi(config, '') },
])('$name', ({ operations, form }) => {
  const server = forSuite(() => buildServer({ config, services: {} as Services, logger, operations, form }));

  const ask = async (method: string, url: string, type?: string) => {
    const headers = type === undefined ? {} : { 'content-type': type };
    const answer = await server.inject({ method: method as 'POST', url, headers, ...(type && { payload: '{"no' }) });
    return [answer.statusCode, answer.json().code];
  };
  const types = [undefined, 'application/json', 'application/xml', 'multipart/form-data; boundary=x', 'nonsense', ';;'];

  it.each(types)('responds 404 to an unknown route with a body of type %s', async (type) => {
    for (const method of ['POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'QUERY']) {
      expect(await ask(method, '/nowhere', type), method).toEqual([404, 'ROUTE_NOT_FOUND']);
    }
  });

  it.each(types)('responds 405 to QUERY and TRACE on every route with a body of type %s', async (type) => {
    for (const { path } of operations) {
      const url = path.replaceAll(/:\w+/g, 'x');
      expect(await ask('QUERY', url, type), path).toEqual([405, 'METHOD_NOT_ALLOWED']);
      expect((await server.inject({ method: 'TRACE', url })).statusCode, path).toBe(405);
    }
  });

  it('describes parameters with a default as optional', async () => {
    const { paths } = (await server.inject('/openapi.json')).json();
    const parameters = Object.values(paths as object).flatMap((path) =>
      Object.values(path as object).flatMap(({ parameters = [] }) => parameters),
    ) as { in: string; name: string; required: boolean; schema: object }[];
    const parametersWithDefault = parameters.filter((each) => each.in === 'query' && 'default' in each.schema);
    expect(parametersWithDefault.length).toBeGreaterThan(5);
    expect(parametersWithDefault.filter(({ required }) => required).map(({ name }) => name)).toEqual([]);
  });
});
