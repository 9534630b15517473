import { operations } from '../../api/main/operations.ts';
import { code, type Page, page, table } from './markdown.ts';

export function operationsPage(): Page {
  const tags = [...new Set(operations.map(({ tag }) => tag))];
  const blocks = tags.flatMap((tag) => [
    `## ${tag}`,
    table(
      ['Operation', 'Method', 'Path', 'Permission', 'Key', 'What it does'],
      operations
        .filter((operation) => operation.tag === tag)
        .map(({ operationId, method, path, aliases = [], mount, access, summary }) => [
          code(operationId),
          method,
          [path, ...aliases].map((each) => code(`${mount === 'root' ? '' : '/api/v1'}${each}`)).join(', '),
          'public' in access ? '' : code(access.permission),
          'public' in access ? 'none' : `of the ${access.tenantScope}`,
          summary,
        ]),
    ),
  ]);
  return page(
    'operations.md',
    'Operations',
    'api/main/operations.ts',
    'Every path under `/api/v1` also answers under `/api` and under `/`, with or without a slash at the end. Parameters, bodies and ' +
      'answers are in the API description that a running Runlake serves: `/docs` for people, `/openapi.json` for programs.',
    'An operation on a workspace needs a key of that workspace, or one of the organisation together with `X-Tenant-Id`.',
    ...blocks,
  );
}
