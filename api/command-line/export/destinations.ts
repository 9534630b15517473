import { existsSync } from 'node:fs';
import { text as readAll } from 'node:stream/consumers';
import { Value } from 'typebox/value';
import { pickShared } from '../../../infra/config/print.ts';
import { findRunningInstance } from '../../../infra/embedded/data-folder.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { createDestinationDeps, type DestinationRecord } from '../../../pipelines/exports/destinations/destination.ts';
import { createDestination, deleteDestination } from '../../../pipelines/exports/destinations/write-destination.ts';
import { formatDestination, NewDestination } from '../../main/export-destinations.ts';
import { findWorkspaces } from '../pick-named.ts';
import { printTable, toPrintable } from '../print-table.ts';
import { findSecretKey } from '../role.ts';
import { findDestination, findWorkspace, listAllDestinations, withExports } from './export-access.ts';

export interface DestinationOptions {
  readonly name: string;
  readonly type: 's3' | 'local';
  readonly bucket?: string;
  readonly prefix?: string;
  readonly region?: string;
  readonly endpoint?: string;
  readonly credentialsStdin?: boolean;
  readonly workspace?: string;
  readonly json?: boolean;
}

/** Settings that determine which destinations exports can use. */
const destinationSettings = ['localExportRoot', 'allowPrivateEndpoints', 'allowDefaultCredentials'] as const;

/** Runs `runlake export destinations list`. */
export async function printDestinations(options: {
  readonly workspace?: string;
  readonly json?: boolean;
}): Promise<void> {
  await withExports(async (access) => {
    const rows: string[][] = [];
    for (const workspace of await findWorkspaces(access, options.workspace)) {
      for (const destination of await listAllDestinations(access.database, workspace.id)) {
        if (options.json === true) console.log(JSON.stringify(formatDestination(destination)));
        const credentials = destination.credentials_keys.join(', ') || 'none';
        rows.push([
          destination.id,
          destination.display_name,
          destination.destination_type,
          formatLocation(destination),
          credentials,
          workspace.name,
        ]);
      }
    }
    if (options.json === true) return;
    if (rows.length === 0)
      console.log('No destinations. To create one, see `runlake export destinations create --help`.');
    else printTable([['ID', 'NAME', 'TYPE', 'PLACE', 'CREDENTIALS', 'WORKSPACE'], ...rows]);
  });
}

/** The command-line option that corresponds to each field of the API request. */
const optionByField: Readonly<Record<string, string>> = {
  display_name: '--name',
  'config.bucket_name': '--bucket',
  'config.prefix': '--prefix',
  'config.region': '--region',
  'config.endpoint_url': '--endpoint',
};

/** Runs `runlake export destinations create`. */
export async function createDestinationWithOptions(options: DestinationOptions): Promise<void> {
  if (options.type === 's3' && options.bucket === undefined) {
    throw runlakeError('BAD_REQUEST', { reason: 'Specify --bucket, or --type local for a folder.' });
  }
  const requested = {
    destination_type: options.type,
    display_name: options.name,
    config: {
      ...(options.bucket !== undefined && { bucket_name: options.bucket }),
      ...(options.prefix !== undefined && { prefix: options.prefix }),
      ...(options.region !== undefined && { region: options.region }),
      ...(options.endpoint !== undefined && { endpoint_url: options.endpoint }),
    },
    ...(options.credentialsStdin === true && {
      credentials: await readCredentials(process.stdin, console.error),
    }),
  };
  if (!Value.Check(NewDestination, requested)) {
    const [first] = Value.Errors(NewDestination, requested);
    const field = first?.instancePath.slice(1).replaceAll('/', '.') ?? '';
    const where = optionByField[field] ?? field;
    const isEmpty = first !== undefined && Value.Pointer.Get(requested, first.instancePath) === '';
    // The message omits the value because it may be a secret.
    const reason = `The destination is not valid: ${where} ${isEmpty ? 'is empty' : first?.message}.`;
    throw runlakeError('BAD_REQUEST', { reason });
  }
  await withExports(async (access) => {
    const { database } = access;
    // The instance that uses the data folder executes the exports, with its settings. Those of other processes are unknown.
    const instance = await findRunningInstance(access.config.dataDir);
    const config = { ...access.config, ...(instance && pickShared(instance, destinationSettings)) };
    if (options.type === 's3' && options.credentialsStdin !== true && !config.allowDefaultCredentials) {
      const reason = 'Specify --credentials-stdin and pass the credentials of the bucket on standard input.';
      throw runlakeError('BAD_REQUEST', { reason });
    }
    const root = options.type === 'local' ? config.localExportRoot : undefined;
    if (root !== undefined && !existsSync(root)) {
      const reason = `The folder '${root}' of RUNLAKE_LOCAL_EXPORT_ROOT does not exist. Create it, or correct the setting.`;
      throw runlakeError('BAD_REQUEST', { reason });
    }
    const workspace = await findWorkspace(access, options.workspace);
    // The API accepts a name again, as its clients expect, but commands refer to destinations by name.
    const sameName = (await listAllDestinations(database, workspace.id)).find(
      (each) => each.display_name === options.name,
    );
    if (sameName !== undefined) {
      const reason = `A destination has the name '${options.name}' already: ${sameName.id}. Choose another name, or delete that one.`;
      throw runlakeError('BAD_REQUEST', { reason });
    }
    const secretKey = findSecretKey(config);
    if (secretKey === undefined) {
      throw runlakeError('BAD_REQUEST', { reason: 'Set RUNLAKE_SECRET_KEY to the key of the running process.' });
    }
    const made = await createDestination(createDestinationDeps(config, database, secretKey), workspace.id, {
      type: options.type,
      displayName: requested.display_name,
      config: requested.config,
      credentials: requested.credentials,
    });
    if (options.json === true) console.log(JSON.stringify(formatDestination(made)));
    else {
      console.error(`Destination created; a test object was written to ${toPrintable(formatLocation(made))}`);
      console.log(made.id);
    }
  });
}

/** Runs `runlake export destinations delete <name or id>`. */
export async function deleteDestinationByName(
  nameOrId: string,
  options: { readonly workspace?: string },
): Promise<void> {
  await withExports(async (access) => {
    const { database } = access;
    const workspace = await findWorkspace(access, options.workspace);
    const { id, name } = await findDestination(database, workspace, nameOrId);
    await deleteDestination(database, workspace.id, id);
    console.log(`The destination ${toPrintable(name)} (${id}) is deleted; exported files stay.`);
  });
}

function formatLocation({ destination_type: type, config }: DestinationRecord): string {
  const folder = [config.bucket_name, config.prefix].filter((part) => part).join('/');
  if (type === 'local') return `${folder || '.'} below RUNLAKE_LOCAL_EXPORT_ROOT`;
  return config.endpoint_url === null ? `s3://${folder}` : `${folder} at ${config.endpoint_url}`;
}

/**
 * Reads the unvalidated JSON for `--credentials-stdin`. On a terminal, prints a prompt; the typed text is visible.
 *
 * @throws BAD_REQUEST if the input is not JSON. The message does not repeat the input.
 */
export async function readCredentials(
  input: NodeJS.ReadableStream & { readonly isTTY?: boolean },
  say: (line: string) => void,
): Promise<{ access_key_id: string; secret_access_key: string }> {
  if (input.isTTY === true) {
    say(
      'Type {"access_key_id": "...", "secret_access_key": "..."}, then Enter and Ctrl-D. Or pass a file with `< keys.json`.',
    );
  }
  try {
    return JSON.parse(await readAll(input));
  } catch {
    throw runlakeError('BAD_REQUEST', {
      reason: 'Standard input is not JSON with access_key_id and secret_access_key.',
    });
  }
}
