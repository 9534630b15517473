import { Type } from 'typebox';
import { listAuditLogs as list } from '../../pipelines/tenants/audit-logs.ts';
import { JsonObject, nullable, Text, Timestamp, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';

const Named = { kind: Type.String(), id: nullable(Type.String()), name: nullable(Type.String()) };

const AuditLog = Type.Object({
  id: Type.String(),
  at: Timestamp(),
  actor: Type.Object(Named, {
    description:
      '`api_key`, `session`, `command` (the operator on the command line) or `system`; id of the API key, email of its user.',
  }),
  action: Type.String({ description: 'Kind of the target and what was done, such as `api_key.revoke`.' }),
  target: nullable(Type.Object(Named)),
  workspace_id: nullable(Uuid(), { description: 'null: the change concerns the organization.' }),
  ip: nullable(Type.String()),
  details: JsonObject({ description: 'Never contains secrets; `changed` lists the changed fields.' }),
});

export const listAuditLogs = defineOperation({
  operationId: 'listAuditLogs',
  method: 'GET',
  path: '/audit-logs',
  summary: 'List who changed what, newest first',
  description:
    'Changes of keys, members, roles, workspaces, secrets, destinations, deployments, providers and shares, sign-ins, and deletions. Entries are kept forever. A key with access to some workspaces sees the entries of these.',
  access: { permission: 'audit-logs:read', tenantScope: 'organization' },
  errors: ['BAD_REQUEST'],
  schema: {
    query: Type.Object({
      limit: Type.Integer({
        minimum: 1,
        maximum: 1_000,
        default: 100,
        description: 'A page with large details has fewer entries.',
      }),
      cursor: Type.Optional(Type.String({ maxLength: 32, description: 'The `cursor` of the previous page.' })),
      since: Type.Optional(Timestamp()),
      until: Type.Optional(Timestamp({ description: 'Exclusive.' })),
      actor: Type.Optional(Text({ maxLength: 320, description: 'Kind, id or name of the actor.' })),
      action: Type.Optional(
        Text({ maxLength: 100, description: 'An action, or the kind of a target, such as `api_key`.' }),
      ),
    }),
    response: { 200: Type.Object({ items: Type.Array(AuditLog), cursor: nullable(Type.String()) }) },
  },
  handler: async ({ caller, query: { limit, cursor, ...filter }, services }) => {
    const { items, cursor: next } = await list(services.database, caller, filter, { limit, cursor });
    return { items: [...items], cursor: next };
  },
});
