import { type Static, Type } from 'typebox';
import type { NewKey } from '../../../pipelines/tenants/create-key.ts';
import { type Permission, permissions } from '../../../pipelines/tenants/permissions.ts';
import { nullable, optional, Text, Timestamp, Uuid } from '../../server/formats.ts';

export const KeyParams = Type.Object({ api_key_id: Uuid() });

/** What an API key is made of. Fields beyond those of the original API: `permissions`, `user_email`. */
export const NewKeyBody = Type.Object({
  description: Type.Optional(Text({ maxLength: 1_000 })),
  read_only: Type.Optional(Type.Boolean()),
  expires_at: optional(Timestamp()),
  workspaces: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
  default_workspace_id: optional(
    Uuid({ description: 'For keys that reach several workspaces: the one of a request that names none.' }),
  ),
  permissions: optional(
    Type.Array(Type.Unsafe<Permission>(Type.Union(permissions.map(({ name }) => Type.Literal(name)))), {
      minItems: 1,
      maxItems: 100,
      description: 'Default: all that the key of the request has.',
    }),
  ),
  user_email: optional(
    Type.String({ format: 'email', maxLength: 320, description: 'Whose key it is. Default: the user of the request.' }),
  ),
});

/** The parts of the original body that have no meaning here. */
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
    description: 'null: every workspace of the organization.',
  }),
  default_workspace_name: nullable(Type.String()),
  permissions: Type.Array(Type.String(), { description: '`*`: all, also those of later releases.' }),
  user_id: Uuid(),
  user_email: Type.String(),
};

export const Key = Type.Object(record);

export const KeyWithSecret = Type.Object({
  ...record,
  key: Type.String({ description: 'The key itself. It is never shown again.' }),
});

export function newKeyOf(body: Static<typeof NewKeyBody>, options: Pick<NewKey, 'organizationWide'>): NewKey {
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
