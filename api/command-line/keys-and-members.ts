import Format from 'typebox/format';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import { type Authenticator, createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import {
  revokeKey as endKey,
  type KeyRecord,
  createKey as makeKey,
  listKeys as readKeys,
} from '../../pipelines/tenants/keys.ts';
import { removeMember as endMembership, listMembers as readMembers } from '../../pipelines/tenants/members.ts';
import { loadOperator } from '../../pipelines/tenants/operator.ts';
import { listOrganizations } from '../../pipelines/tenants/organizations.ts';
import { EVERYTHING } from '../../pipelines/tenants/permissions.ts';
import { withStores } from './open-stores.ts';
import { findWorkspaces, isId, pickByNameOrId } from './pick-named.ts';
import { printTable } from './print-table.ts';

export interface OrganizationOptions {
  /** Name or id of the organisation. Default: the first organisation. */
  readonly in?: string;
}

export interface CreateKeyOptions extends OrganizationOptions {
  readonly description: string;
  readonly workspace?: string;
  readonly organization?: boolean;
  readonly email?: string;
  readonly readOnly?: boolean;
}

/** Runs `runlake keys list`. */
export async function listKeys(options: OrganizationOptions): Promise<void> {
  await withOperator('keys', options, async ({ database, operator }) => {
    const rows = (await readKeys(database, operator, null)).map((key) => [
      key.id,
      key.short_key,
      key.user_email,
      key.workspace_names?.join(', ') ?? 'whole organisation',
      formatPermissions(key),
      key.description,
    ]);
    printTable([['ID', 'KEY', 'USER', 'REACHES', 'MAY', 'DESCRIPTION'], ...rows]);
  });
}

/** Limits do not apply to the command line, so that an operator can always create a key. */
const noLimits = { maxApiKeys: Number.POSITIVE_INFINITY, maxMembers: Number.POSITIVE_INFINITY };

/** Runs `runlake keys create`. Prints only the key to standard output. */
export async function createKey(options: CreateKeyOptions): Promise<void> {
  if (options.email !== undefined && !Format.Test('email', options.email)) {
    throw runlakeError('BAD_REQUEST', { reason: `--email must be an email address, not '${options.email}'.` });
  }
  await withOperator('keys', options, async ({ database, operator }) => {
    const workspaceId =
      options.workspace === undefined
        ? operator.workspaceId
        : (await findWorkspaces({ database, operator }, options.workspace))[0]?.id;
    const created = await makeKey(
      database,
      operator,
      {
        description: options.description,
        readOnly: options.readOnly === true,
        organizationWide: options.organization === true,
        ...(options.organization !== true && workspaceId !== undefined && { workspaceIds: [workspaceId] }),
        ...(options.email !== undefined && { userEmail: options.email }),
      },
      noLimits,
    );
    console.error(`Key ${created.id} (${created.description}) for ${created.user_email}, shown this once:`);
    console.log(created.key);
  });
}

/** Runs `runlake keys revoke <id>`. */
export async function revokeKey(id: string, options: OrganizationOptions): Promise<void> {
  if (!isId(id)) throw runlakeError('BAD_REQUEST', { reason: `'${id}' is not a key id. See \`runlake keys list\`.` });
  await withOperator('keys', options, async (access) => {
    const ended = await endKey(access, access.operator, id, null);
    console.log(`Key ${ended.short_key} is revoked.`);
  });
}

/** Runs `runlake members list`. */
export async function listMembers(options: OrganizationOptions): Promise<void> {
  await withOperator('members', options, async ({ database, operator }) => {
    const rows = (await readMembers(database, operator)).map((member) => [
      ...[member.id, member.email, member.full_name ?? '', member.created_at],
    ]);
    printTable([['ID', 'EMAIL', 'NAME', 'ADDED'], ...rows]);
  });
}

/** Runs `runlake members remove <email>`. */
export async function removeMember(email: string, options: OrganizationOptions): Promise<void> {
  await withOperator('members', options, async (access) => {
    const members = await readMembers(access.database, access.operator);
    const member = members.find((each) => each.email.toLowerCase() === email.toLowerCase());
    if (member === undefined) {
      throw runlakeError('BAD_REQUEST', { reason: `No member '${email}'. See \`runlake members list\`.` });
    }
    await endMembership(access, access.operator, member.id);
    console.log(`${member.email} is removed; the keys of this member are revoked.`);
  });
}

function formatPermissions({ read_only: readOnly, permissions }: KeyRecord): string {
  const scope = permissions.includes(EVERYTHING) ? 'everything' : `${permissions.length} permissions`;
  return readOnly ? `${scope}, read only` : scope;
}

interface OperatorAccess {
  readonly database: Database;
  readonly authenticator: Authenticator;
  readonly operator: Caller;
}

/** Runs `act` as the operator of the organisation that the options name. */
export async function withOperator(
  command: string,
  { in: nameOrId }: OrganizationOptions,
  act: (access: OperatorAccess) => Promise<void>,
): Promise<void> {
  await withStores(command, async ({ stores: { database }, logger, shutdown }) => {
    const authenticator = createAuthenticator({ database, logger });
    shutdown.add('authenticator', () => authenticator.close());
    await act({ database, authenticator, operator: await loadOrganizationOperator(database, nameOrId) });
  });
}

/**
 * Loads the caller for the organisation with the given name or id.
 *
 * @throws BAD_REQUEST if there is no such organisation. If several organisations have the name, the error lists their
 *   ids.
 */
async function loadOrganizationOperator(database: Database, nameOrId: string | undefined): Promise<Caller> {
  const operator = await loadOperator(database);
  if (nameOrId === undefined) return operator;
  const all = await listOrganizations(database, operator, { includeDeleted: false });
  const namedOrganizations = all.map(({ id, display_name: name }) => ({ id, name }));
  return loadOperator(database, pickByNameOrId('organisation', nameOrId, namedOrganizations).id);
}
