import Format from 'typebox/format';
import { runlakeError } from '../../infra/errors/runlake-error.ts';
import type { Database } from '../../infra/postgres/pool.ts';
import type { Caller } from '../../pipelines/tenants/caller.ts';
import { loadOperator } from '../../pipelines/tenants/operator.ts';
import {
  createOrganization as create,
  type ListedOrganization,
  listOrganizations as list,
  deleteOrganization as remove,
} from '../../pipelines/tenants/organizations.ts';
import { enqueueDeletions } from './enqueue-deletions.ts';
import { prompt, runInterruptibly } from './interrupt.ts';
import { withStores } from './open-stores.ts';
import { printTable, toPrintable } from './print-table.ts';

export interface CreateOrganizationOptions {
  readonly workspace?: string;
  readonly handle?: string;
  readonly email?: string;
}

interface Access {
  readonly database: Database;
  readonly operator: Caller;
  readonly enqueueWorkspaceDeletion: (workspaceId: string) => Promise<void>;
}

/** Runs `runlake organizations list`. */
export async function listOrganizations(): Promise<void> {
  await asOperator(async ({ database, operator }) => {
    const rows = (await list(database, operator, { includeDeleted: true })).map((each) => [
      ...[each.id, each.display_name, each.created_at, String(each.workspaces), formatState(each)],
    ]);
    printTable([['ID', 'NAME', 'CREATED', 'WORKSPACES', 'STATE'], ...rows]);
  });
}

/** Runs `runlake organizations create <name>`. Prints only the admin key to standard output. */
export async function createOrganization(name: string, options: CreateOrganizationOptions): Promise<void> {
  const { workspace: workspaceName, handle, email: adminEmail } = options;
  for (const [what, text] of Object.entries({ name, ...options })) requireName(what, text);
  if (handle !== undefined && !/^[a-z0-9][a-z0-9_-]{0,63}$/.test(handle)) {
    throw runlakeError('BAD_REQUEST', {
      reason: `--handle must be 1 to 64 of the characters a-z, 0-9, - and _, not '${handle}'.`,
    });
  }
  if (adminEmail !== undefined && !Format.Test('email', adminEmail)) {
    throw runlakeError('BAD_REQUEST', { reason: `--email must be an email address, not '${adminEmail}'.` });
  }
  await asOperator(async ({ database, operator }) => {
    // The limit on organisations applies only to callers of the API.
    const deps = { database, config: { maxOrganizations: Number.POSITIVE_INFINITY } };
    const created = await create(deps, operator, { displayName: name, workspaceName, handle, adminEmail });
    console.error(`Organisation ${created.organizationId} (${name})`);
    console.error(`Workspace ${created.workspaceId} (${created.workspaceName}), tenant handle ${created.tenantHandle}`);
    console.error(`Admin key of ${created.adminEmail}, shown this once:`);
    console.log(created.key);
  });
}

/**
 * Runs `runlake organizations delete <id>`. Prompts for the name of the organisation unless `--confirm` contains the
 * name.
 */
export async function deleteOrganization(id: string, { confirm }: { readonly confirm?: string }): Promise<void> {
  const createUnknownError = () =>
    runlakeError('BAD_REQUEST', { reason: `No organisation '${id}'. See \`runlake organizations list\`.` });
  if (!Format.Test('uuid', id)) throw createUnknownError();
  const work = async (access: Access, interrupted: AbortSignal) => {
    const all = await list(access.database, access.operator, { includeDeleted: true });
    const found = all.find((each) => each.id === id.toLowerCase());
    if (found === undefined) throw createUnknownError();
    const { display_name: name, workspaces } = found;
    if ((confirm ?? (await promptForName(name, workspaces, interrupted))) !== name) {
      throw runlakeError('BAD_REQUEST', { reason: `Nothing was deleted: the name of the organisation is '${name}'.` });
    }
    const authenticator = { forgetAll: () => undefined };
    const deletedOrganization = await remove({ ...access, authenticator }, access.operator, id);
    console.log(
      `Organisation ${name} is deleted. Its keys stop working within two seconds. State of its data: ${formatState(deletedOrganization)}.`,
    );
    console.log('`runlake organizations list` shows the progress of the deletion.');
  };
  await runInterruptibly((interrupted) => asOperator((access) => work(access, interrupted)));
}

function promptForName(name: string, workspaces: number, interrupted: AbortSignal): Promise<string> {
  const deleted = `the organisation '${toPrintable(name)}' with ${workspaces} workspaces and all their data`;
  return prompt(`This deletes ${deleted}. Type its name to continue: `, interrupted);
}

function requireName(what: string, text: string | undefined): void {
  if (text === undefined) return;
  if (text.length === 0 || text.length > 256 || /[\0\p{Surrogate}]/u.test(text)) {
    throw runlakeError('BAD_REQUEST', { reason: `The ${what} must have 1 to 256 characters.` });
  }
}

function formatState({ deleted_at, workspaces, purged_workspaces }: ListedOrganization): string {
  if (deleted_at === null) return 'active';
  if (purged_workspaces === workspaces) return 'deleted';
  return `deleting, ${purged_workspaces} of ${workspaces} workspaces done`;
}

async function asOperator(act: (access: Access) => Promise<void>): Promise<void> {
  await withStores('organizations', async ({ stores: { database }, openJobs }) => {
    const enqueueWorkspaceDeletion = async (id: string) =>
      enqueueDeletions(await openJobs()).enqueueWorkspaceDeletion(id);
    await act({ database, operator: await loadOperator(database), enqueueWorkspaceDeletion });
  });
}
