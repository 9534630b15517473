import { agentOperations } from '../../api/agent-server/operations.ts';
import { operations } from '../../api/main/operations.ts';
import type { Operation } from '../../api/server/operation.ts';
import { code, type Page, page, table } from './markdown.ts';

export function operationsPage(): Page {
  return page(
    'operations.md',
    'Operations',
    'api/main/operations.ts',
    'Every path under `/api/v1` also answers under `/api` and under `/`, with or without a slash at the end. Parameters, bodies and ' +
      'answers are in the API description that a running Runlake serves: `/docs` for people, `/openapi.json` for programs.',
    'An operation on a workspace needs a key of that workspace, or one of the organisation together with `X-Tenant-Id`.',
    ...tablesOf(operations),
  );
}

export function agentOperationsPage(): Page {
  return page(
    'agent-operations.md',
    'Operations of the agent server',
    'api/agent-server/operations.ts',
    'The agent server has an address of its own, `RUNLAKE_AGENTS_PORT`, and no prefix. Parameters, bodies and answers are in the API ' +
      'description that it serves: `/docs` for people, `/openapi.json` for programs.',
    'Any key of the organisation that owns the agent server is let in, those of its workspaces too.',
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
          'public' in access ? '' : code(access.permission),
          'public' in access ? 'none' : `of the ${access.tenantScope}`,
          summary,
        ]),
    ),
  ]);
}
