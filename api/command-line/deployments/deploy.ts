import { createReadStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Readable } from 'node:stream';
import { loadConfig } from '../../../infra/config/load.ts';
import { formatBytes, formatDuration } from '../format-figures.ts';
import { unlessInterrupted } from '../interrupt.ts';
import { type MainApiClient, type MainApiOptions, sendRequest, withMainApi } from '../main-api-client.ts';
import { toPrintable } from '../print-table.ts';
import { type Deployment, followRevision, type Revision, readRevision } from './follow-revision.ts';
import { packFolder, readSourceFolder, type SourceFolder } from './pack-folder.ts';

export interface DeployOptions extends MainApiOptions {
  readonly name?: string;
  readonly installCommand?: string;
  readonly buildCommand?: string;
  readonly wait: boolean;
}

/**
 * Runs `runlake deploy [folder]`. Progress goes to standard error, the address of the deployment to standard output. The
 * exit code is 0 only if the revision is DEPLOYED, and 130 if SIGINT stopped the command.
 */
export async function deployFolder(path: string, options: DeployOptions): Promise<void> {
  const startMs = performance.now();
  const source = await readSourceFolder(path);
  const name = options.name ?? basename(source.folder);
  const temporary = await mkdtemp(join(tmpdir(), 'runlake-deploy-'));
  try {
    const tarball = join(temporary, 'source.tar.gz');
    const bytes = await packFolder(source, tarball, loadConfig().config.deploymentsMaxSourceBytes);
    const fileCount = source.files.length;
    note(`Packed ${fileCount} file${fileCount === 1 ? '' : 's'} of ${source.folder} (${formatBytes(bytes)})`);
    await withMainApi(options, async (client) => {
      const deployment = await updateOrCreate(client, { name, source, tarball, options });
      const revisionId = String(deployment.latest_revision_id);
      const url = deployment.source_config.custom_url;
      if (!options.wait) {
        print(options, { deployment, revision: await readRevision(client, deployment.id, revisionId), url });
        return;
      }
      const ids = { deploymentId: deployment.id, revisionId };
      const revision = await unlessInterrupted(client, watch(client, ids));
      if (revision === undefined) {
        note(`The deployment continues. To follow it: runlake deployments logs --follow ${toPrintable(name)}`);
        process.exitCode = 130;
        return;
      }
      const seconds = (performance.now() - startMs) / 1_000;
      if (revision.status === 'DEPLOYED') note(`${toPrintable(name)} serves after ${formatDuration(seconds)}`);
      else {
        const { reason = '' } = revision.transitions.at(-1) ?? {};
        // The last lines of the log of a replica follow the reason.
        const lines = reason.split('\n').map(toPrintable);
        note(`${revision.status}: ${lines.join('\n  ')}`);
        if (deployment.active_revision_id !== null) note('The former revision still serves.');
        process.exitCode = 1;
      }
      if (options.json === true || revision.status === 'DEPLOYED') print(options, { deployment, revision, url });
    });
  } finally {
    await rm(temporary, { recursive: true, force: true });
  }
}

interface Upload {
  readonly name: string;
  readonly source: SourceFolder;
  readonly tarball: string;
  readonly options: DeployOptions;
}

/** Uploads the source, and creates a revision of the deployment with this name, which is created if it is missing. */
async function updateOrCreate(client: MainApiClient, { name, source, tarball, options }: Upload): Promise<Deployment> {
  const { installCommand, buildCommand } = options;
  const sourceConfig = {
    ...(installCommand !== undefined && { install_command: installCommand }),
    ...(buildCommand !== undefined && { build_command: buildCommand }),
  };
  const secrets =
    source.variables &&
    Object.entries(source.variables).flatMap(([key, value]) => (value === '' ? [] : { name: key, value }));
  const present = await findByName(client, name);
  const { id } =
    present ??
    (await client.ask<Deployment>('POST', '/v2/deployments', {
      ...{ name, source: 'internal_source', source_revision_config: {} },
      ...{ source_config: { deployment_type: 'prod', ...sourceConfig }, secrets: secrets ?? [] },
    }));
  note(`${present ? 'Updating' : 'Created'} the deployment ${toPrintable(name)} (${id})`);
  if (secrets !== undefined && secrets.length > 0)
    note(`Secrets from the environment file: ${secrets.map((each) => each.name).join(', ')}`);
  const { upload_url, object_path } = await client.ask<{ upload_url: string; object_path: string }>(
    'POST',
    `/v2/deployments/${id}/upload-url`,
  );
  await sendRequest(upload_url, {
    ...{ method: 'PUT', headers: { 'content-type': 'application/gzip' }, signal: client.interrupted },
    ...{ body: Readable.toWeb(createReadStream(tarball)) as unknown as ReadableStream<Uint8Array>, duplex: 'half' },
  } as RequestInit);
  return client
    .ask('POST', `/v2/deployments/${id}/revisions`, {
      ...{ revision_source: 'internal_source', source_config: sourceConfig, ...(secrets && { secrets }) },
      source_revision_config: { source_tarball_path: object_path, langgraph_config_path: source.configPath },
    })
    .then(() => client.ask<Deployment>('GET', `/v2/deployments/${id}`));
}

/** @returns undefined if there is none. */
export async function findByName(client: MainApiClient, name: string): Promise<Deployment | undefined> {
  const limit = 100;
  for (let offset = 0; ; offset += limit) {
    const query = new URLSearchParams({ name_contains: name, limit: String(limit), offset: String(offset) });
    const { resources } = await client.ask<{ resources: Deployment[] }>('GET', `/v2/deployments?${query}`);
    const found = resources.find((each) => each.name === name && each.status !== 'AWAITING_DELETE');
    if (found !== undefined || resources.length < limit) return found;
  }
}

/** Shows statuses and the log of the build. */
async function watch(
  client: MainApiClient,
  ids: { readonly deploymentId: string; readonly revisionId: string },
): Promise<Revision> {
  const watcher = {
    onStatus: (status: string) => note(status),
    onUnclaimed: () =>
      note(
        'No host has accepted the revision yet. Hosts are `runlake all`, and `runlake agents` without RUNLAKE_AGENTS_FILE.',
      ),
    onLine: (line: string) => note(`  ${toPrintable(line)}`),
  };
  await followRevision(client, ids, watcher);
  return readRevision(client, ids.deploymentId, ids.revisionId);
}

interface DeployResult {
  readonly deployment: Deployment;
  readonly revision: Revision;
  readonly url: string;
}

function print({ json }: DeployOptions, result: DeployResult): void {
  console.log(json === true ? JSON.stringify(result) : result.url);
}

function note(line: string): void {
  console.error(line);
}
