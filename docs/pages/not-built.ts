import { operations } from '../../api/main/operations.ts';
import { listUnbuiltRoutes, originalRoutes } from '../../api/server/unserved-routes.ts';
import { code, type Page, page, table } from './markdown.ts';

export function notBuiltPage(): Page {
  const routes = listUnbuiltRoutes(originalRoutes, operations);
  const methods = new Map<string, string[]>();
  for (const { method, path } of routes) methods.set(path, [...(methods.get(path) ?? []), method]);
  return page(
    'not-built.md',
    'Routes that are not built',
    'schemas/main-api/routes.txt',
    `The API whose clients Runlake supports has ${originalRoutes.length} routes; ${originalRoutes.length - routes.length} are built. The others get 404 ` +
      'with `ROUTE_NOT_BUILT`, which clients do not repeat.',
    table(
      ['Path', 'Methods'],
      [...methods].map(([path, list]) => [code(path), list.join(', ')]),
    ),
  );
}
