import { agentOperations } from '../../api/agent-server/operations.ts';
import { operations } from '../../api/main/operations.ts';
import type { Operation } from '../../api/server/operation.ts';
import { code, type Page, page, table } from './markdown.ts';

export function operationsPage(): Page {
  return page(
    'operations.md',
    'Operations',
    'api/main/operations.ts',
    'Every path under `/api/v1` is also served under `/api` and under `/`, with or without a trailing slash. The API description that ' +
      'a running Runlake serves defines parameters, bodies and responses: `/docs` for people, `/openapi.json` for programs.',
    'An operation on a workspace needs a key of that workspace, or one of the organisation together with `X-Tenant-Id`.',
    ...tablesOf(operations),
  );
}

export function agentOperationsPage(): Page {
  return page(
    'agent-operations.md',
    'Operations of the agent server',
    'api/agent-server/operations.ts',
    'The agent server has its own port, `RUNLAKE_AGENTS_PORT`, and no path prefix. The API description that it serves defines ' +
      'parameters, bodies and responses: `/docs` for people, `/openapi.json` for programs.',
    'The agent server accepts any key of the organisation that owns it, and any key of its workspaces.',
    ...tablesOf(agentOperations),
  );
}

function tablesOf(operations: readonly Operation[]): string[] {
  const tags = [...new Set(operations.map(({ tag }) => tag))];
  return tags.flatMap((tag) => [
    `## ${tag}`,
    table(
      ['Operation', 'Method', 'Path', 'Permission', 'Key', 'What it does'],
      operations
        .filter((operation) => operation.tag === tag)
        .map(({ operationId, method, path, aliases = [], mount, access, summary }) => [
          code(operationId),
          method,
          [path, ...aliases].map((each) => code(`${mount === 'root' ? '' : '/api/v1'}${each}`)).join(', '),
          'permission' in access ? code(access.permission) : '',
          'public' in access ? 'none' : `of the ${access.tenantScope}`,
          summary,
        ]),
    ),
  ]);
}
