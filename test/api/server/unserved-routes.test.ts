import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { operations } from '../../../api/main/operations.ts';
import { listUnbuiltRoutes, originalRoutes, type Route } from '../../../api/server/unserved-routes.ts';
import { forSuite } from '../../for-suite.ts';
import { startApi } from '../start-api.ts';

const api = forSuite(() => startApi());

const unbuilt = listUnbuiltRoutes(originalRoutes, operations);
const send = ({ method, path }: Route, prefix = '') =>
  api.server.inject({ method: method as 'GET', url: prefix + path.replace(/\{[^}]+\}/g, 'x') });

it('answers every route that is not built with 404 and says so, before authentication', async () => {
  expect(unbuilt.length).toBeGreaterThan(100);
  for (const route of unbuilt) {
    const response = await send(route);
    expect([response.statusCode, response.json().code], `${route.method} ${route.path}`).toEqual([
      404,
      'ROUTE_NOT_BUILT',
    ]);
    expect(response.json().detail).toMatch(/^Runlake has not built /);
  }
});

it('serves every other route of the original API', async () => {
  const left = new Set(unbuilt);
  for (const route of originalRoutes.filter((each) => !left.has(each))) {
    const { body } = await send(route);
    expect(body, `${route.method} ${route.path}`).not.toMatch(/ROUTE_NOT_|METHOD_NOT_ALLOWED/);
  }
});

/** Returns the routes that the generated part of a stock client calls, such as `GET /api/v1/agents/{agentID}`. */
function listClientRoutes(folder: string): Route[] {
  const call =
    /_client\s*\.(get|post|put|patch|delete|getAPIList)\((?:[^'"`;]*path\)?)?\s*(['"`])(\/[^'"`]+)\2([^;]*)/g;
  const files = readdirSync(`node_modules/${folder}`, { recursive: true, encoding: 'utf8' });
  const routes = files
    .filter((file) => file.endsWith('.js'))
    .flatMap((file) =>
      [...readFileSync(`node_modules/${folder}/${file}`, 'utf8').matchAll(call)].map(
        ([, name, , path = '', options = '']) => ({
          method: name === 'getAPIList' ? (/method: ['"](\w+)/.exec(options)?.[1] ?? 'get') : (name as string),
          path: path.replace(/\$\{[^}]+\}/g, '{id}'),
        }),
      ),
    );
  return routes.map(({ method, path }) => ({ method: method.toUpperCase(), path }));
}

it.each([
  ['langsmith/dist/_openapi_client/resources', 60],
  ['langsmith-0-12/resources', 80],
])('knows every route that %s calls', async (folder, atLeast) => {
  const routes = listClientRoutes(folder);
  expect(routes.length).toBeGreaterThan(atLeast);
  for (const route of routes) {
    const { body } = await send(route);
    expect(body, `${route.method} ${route.path}`).not.toMatch(/ROUTE_NOT_FOUND|METHOD_NOT_ALLOWED/);
  }
});

it.each([
  ['DELETE', '/datasets', '', 404],
  ['DELETE', '/datasets', '/api/v1', 404],
  ['PUT', '/annotation-queues', '', 405],
  ['GET', '/annotation-queues/', '', 401],
])('%s %s with the prefix "%s" gets %i', async (method, path, prefix, status) => {
  expect((await send({ method, path }, prefix)).statusCode).toBe(status);
});
