import { operations } from '../../api/main/operations.ts';
import { permissions } from '../../pipelines/tenants/permissions.ts';
import { code, type Page, page, table } from './markdown.ts';

export function permissionsPage(): Page {
  return page(
    'permissions.md',
    'Permissions',
    'pipelines/tenants/permissions.ts',
    'What an API key may do. A key never gets more than the key that makes it. A read-only key has only those that read; one that ' +
      'belongs to some workspaces, not to the whole organisation, lacks those that change the organisation.',
    table(
      ['Permission', 'Reaches', 'Reads only', 'Allows', 'Operations'],
      permissions.map(({ name, scope, reads, about }) => [
        code(name),
        scope,
        reads ? 'yes' : 'no',
        about,
        operations
          .filter(({ access }) => !('public' in access) && access.permission === name)
          .map(({ operationId }) => code(operationId))
          .join(', '),
      ]),
    ),
  );
}
