import { Type } from 'typebox';
import { changeSecrets, deleteSecret, listSecretKeys, requireSecret } from '../../pipelines/tenants/secrets.ts';
import { nullable, optional, Text } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const Key = () => Text({ minLength: 1, maxLength: 255 });
const Value = () => Text({ minLength: 1, maxLength: 65_536 });
const KeyParams = Type.Object({ key: Key() });
const Secret = Type.Object({ key: Type.String() });
const manageAccess = { permission: 'secrets:manage', tenantScope: 'workspace' } as const;

const listSecrets = defineOperation({
  operationId: 'listSecrets',
  method: 'GET',
  path: '/workspaces/current/secrets',
  summary: 'List the keys of the secrets of the workspace',
  description: 'Values are never returned.',
  access: { permission: 'secrets:read', tenantScope: 'workspace' },
  unsupported: { query: ['include_configs'], flags: ['include_configs'] },
  schema: { response: { 200: Type.Array(Secret) } },
  handler: async ({ caller, services }) =>
    (await listSecretKeys(services.database, caller.workspaceId)).map((key) => ({ key })),
});

const setSecrets = defineOperation({
  operationId: 'setSecrets',
  method: 'POST',
  path: '/workspaces/current/secrets',
  summary: 'Set and delete secrets of the workspace',
  description: 'All or none. Values are stored encrypted.',
  access: manageAccess,
  errors: ['LIMIT_REACHED'],
  schema: {
    body: Type.Array(
      Type.Object({ key: Key(), value: nullable(Value(), { description: 'Null deletes the secret.' }) }),
      {
        maxItems: 200,
      },
    ),
    response: { 200: Type.Object({ message: Type.String() }) },
  },
  handler: async ({ caller, body, services }) => {
    await changeSecrets(services, caller.workspaceId, body);
    return { message: 'Secrets changed' };
  },
});

const setSecret = defineOperation({
  operationId: 'setSecret',
  method: 'PUT',
  path: '/workspaces/current/secrets/:key',
  summary: 'Set a secret of the workspace',
  description: 'Without `value`, 404 if there is no such secret.',
  access: manageAccess,
  unsupported: { body: ['configs'] },
  errors: ['LIMIT_REACHED', 'NOT_FOUND'],
  schema: { params: KeyParams, body: Type.Object({ value: optional(Value()) }), response: { 200: Secret } },
  handler: async ({ caller, params: { key }, body: { value }, services }) => {
    if (value == null) await requireSecret(services.database, caller.workspaceId, key);
    else await changeSecrets(services, caller.workspaceId, [{ key, value }]);
    return { key };
  },
});

const removeSecret = defineOperation({
  operationId: 'deleteSecret',
  method: 'DELETE',
  path: '/workspaces/current/secrets/:key',
  summary: 'Delete a secret of the workspace',
  description: 'Succeeds too if there is no such secret.',
  access: manageAccess,
  schema: { params: KeyParams, response: { 204: Type.Null() } },
  handler: async ({ caller, params, services }) => {
    await deleteSecret(services.database, caller.workspaceId, params.key);
    return null;
  },
});

export const secretOperations = [listSecrets, setSecrets, setSecret, removeSecret];
