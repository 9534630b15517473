import { type Static, Type } from 'typebox';
import type { NewKey } from '../../../pipelines/tenants/create-key.ts';
import { type Permission, permissions } from '../../../pipelines/tenants/permissions.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';

export const KeyParams = Type.Object({ api_key_id: Uuid() });

/** Body of the operations that create API keys. `permissions` and `user_email` are not part of the original API. */
export const NewKeyBody = Type.Object({
  description: Type.Optional(Text({ maxLength: 1_000 })),
  read_only: Type.Optional(Type.Boolean()),
  expires_at: optional(Timestamp()),
  workspaces: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  default_workspace_id: optional(
    Uuid({ description: 'Workspace of requests without `X-Tenant-Id`, for keys with access to several workspaces.' }),
  ),
  permissions: optional(
    Type.Array(Type.Unsafe<Permission>(Type.Union(permissions.map(({ name }) => Type.Literal(name)))), {
      minItems: 1,
      maxItems: 100,
      description: 'Default: all permissions of the key of the request.',
    }),
  ),
  user_email: optional(
    Type.String({
      format: 'email',
      maxLength: 320,
      description: 'The user that the key belongs to. Default: the user of the request.',
    }),
  ),
});

/** Fields of the original API that have no meaning here. */
export const unsupportedKeyFields = ['role_id', 'org_role_id'];

const record = {
  id: Uuid(),
  short_key: Type.String(),
  description: Type.String(),
  read_only: Type.Boolean(),
  created_at: Timestamp(),
  last_used_at: nullable(Timestamp()),
  expires_at: nullable(Timestamp()),
  workspace_names: nullable(Type.Array(Type.String()), {
    description: 'null: all workspaces of the organization.',
  }),
  default_workspace_name: nullable(Type.String()),
  permissions: Type.Array(Type.String(), { description: '`*`: all permissions, including those of later releases.' }),
  user_id: Uuid(),
  user_email: Type.String(),
};

export const Key = Type.Object(record);

export const KeyWithSecret = Type.Object({
  ...record,
  key: Type.String({ description: 'The secret key. It is never returned again.' }),
});

export function buildNewKey(body: Static<typeof NewKeyBody>, options: Pick<NewKey, 'organizationWide'>): NewKey {
  return {
    description: body.description ?? 'Default API key',
    readOnly: body.read_only ?? false,
    expiresAt: body.expires_at,
    workspaceIds: body.workspaces,
    defaultWorkspaceId: body.default_workspace_id,
    permissions: body.permissions,
    userEmail: body.user_email,
    ...options,
  };
}
