import { operations } from '../../api/main/operations.ts';
import { permissions } from '../../pipelines/tenants/permissions.ts';
import { code, type Page, page, table } from './markdown.ts';

export function permissionsPage(): Page {
  return page(
    'permissions.md',
    'Permissions',
    'pipelines/tenants/permissions.ts',
    'The permissions of API keys. A key never gets more permissions than the key that creates it. A read-only key has only the ' +
      'permissions that read. A key of some workspaces, not of the whole organisation, lacks the permissions that change the organisation.',
    table(
      ['Permission', 'Scope', 'Read-only', 'Allows', 'Operations'],
      permissions.map(({ name, scope, reads, about }) => [
        code(name),
        scope,
        reads ? 'yes' : 'no',
        about,
        operations
          .filter(({ access }) => 'permission' in access && access.permission === name)
          .map(({ operationId }) => code(operationId))
          .join(', '),
      ]),
    ),
  );
}
