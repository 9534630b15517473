import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { prompt, unlessInterrupted } from '../interrupt.ts';
import { type MainApiClient, type MainApiOptions, withMainApi } from '../main-api-client.ts';
import { isId } from '../pick-named.ts';
import { printTable, toPrintable } from '../print-table.ts';
import { findByName } from './deploy.ts';
import { type Deployment, followRevision, readRevision } from './follow-revision.ts';

/** Runs `runlake deployments list`. */
export async function listDeployments(options: MainApiOptions): Promise<void> {
  await withMainApi(options, async (client) => {
    const found: Deployment[] = [];
    const limit = 100;
    for (let isLast = false; !isLast; ) {
      const path = `/v2/deployments?limit=${limit}&offset=${found.length}`;
      const { resources } = await client.ask<{ resources: Deployment[] }>('GET', path);
      found.push(...resources);
      isLast = resources.length < limit;
    }
    if (options.json === true) {
      for (const each of found) console.log(JSON.stringify(each));
      return;
    }
    if (found.length === 0) {
      console.log('No deployments.');
      return;
    }
    const rows = await Promise.all(
      found.map(async ({ id, name, source, source_config, status, latest_revision_id, active_revision_id }) => {
        const latest = latest_revision_id === null ? undefined : await readRevision(client, id, latest_revision_id);
        const serves = active_revision_id !== null && status !== 'AWAITING_DELETE' ? 'yes' : 'no';
        return [
          name,
          serves,
          status === 'READY' ? (latest?.status ?? 'no revision') : status,
          source,
          source_config.custom_url,
        ];
      }),
    );
    printTable([['NAME', 'SERVES', 'LATEST REVISION', 'SOURCE', 'ADDRESS'], ...rows], 100);
  });
}

export interface LogOptions extends MainApiOptions {
  readonly revision?: string;
  readonly follow?: boolean;
}

/** Runs `runlake deployments logs <name or id>`. */
export async function printLogs(nameOrId: string, options: LogOptions): Promise<void> {
  if (options.revision !== undefined && !isId(options.revision)) {
    const reason = `--revision must be the id of a revision, not '${toPrintable(options.revision)}'.`;
    throw runlakeError('BAD_REQUEST', { reason });
  }
  await withMainApi(options, async (client) => {
    const { id, latest_revision_id } = await findDeployment(client, nameOrId);
    const revisionId = options.revision ?? latest_revision_id;
    if (revisionId === null) throw runlakeError('BAD_REQUEST', { reason: 'The deployment has no revision.' });
    const isJson = options.json === true;
    const ids = { deploymentId: id, revisionId };
    const watcher = {
      onStatus: (status: string) => console.log(isJson ? JSON.stringify({ status }) : `-- ${status}`),
      onLine: (line: string, stage: string) =>
        console.log(isJson ? JSON.stringify({ stage, line }) : `${stage.padEnd(6)} ${toPrintable(line)}`),
    };
    const isDone = () => options.follow !== true;
    await unlessInterrupted(client, followRevision(client, ids, watcher, isDone));
  });
}

/** Runs `runlake deployments delete <name or id>`. */
export async function deleteDeployment(
  nameOrId: string,
  options: MainApiOptions & { readonly confirm?: string; readonly deleteTracingProject?: boolean },
): Promise<void> {
  await withMainApi(options, async (client) => {
    const { id, name } = await findDeployment(client, nameOrId);
    const confirmed = options.confirm ?? (await promptForName(name, client.interrupted));
    if (confirmed !== name) {
      throw runlakeError('BAD_REQUEST', { reason: `Nothing is deleted: '${toPrintable(confirmed)}' is not its name.` });
    }
    const query = options.deleteTracingProject === true ? '?delete_tracing_project=true' : '';
    await client.ask('DELETE', `/v2/deployments/${id}${query}`);
    if (options.json === true) console.log(JSON.stringify({ id, name, status: 'AWAITING_DELETE' }));
    else console.log(`The deployment ${toPrintable(name)} is being deleted, with its threads and assistants.`);
  });
}

/** @throws BAD_REQUEST without a terminal; the reason of `interrupted`. */
async function promptForName(name: string, interrupted: AbortSignal): Promise<string> {
  if (process.stdin.isTTY !== true)
    throw runlakeError('BAD_REQUEST', { reason: 'Without a terminal, specify --confirm.' });
  return prompt(`Type its name, ${toPrintable(name)}, to delete it with its threads: `, interrupted);
}

/** @throws BAD_REQUEST if there is none. */
async function findDeployment(client: MainApiClient, nameOrId: string): Promise<Deployment> {
  const named = await findByName(client, nameOrId);
  if (named !== undefined) return named;
  if (isId(nameOrId)) return client.ask('GET', `/v2/deployments/${nameOrId}`);
  throw runlakeError('BAD_REQUEST', { reason: `No deployment has the name or id '${toPrintable(nameOrId)}'.` });
}
