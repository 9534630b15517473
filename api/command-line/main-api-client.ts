import { loadConfig } from '../../infra/config/load.ts';
import { readClientEnvironment } from '../../infra/config/tool-credentials.ts';
import { findRunningInstance, readRunFile } from '../../infra/embedded/data-folder.ts';
import { type RunlakeError, runlakeError } from '../../infra/errors/runlake-error.ts';
import { createAuthenticator } from '../../pipelines/tenants/authenticate.ts';
import { loadOperator } from '../../pipelines/tenants/operator.ts';
import { normaliseEndpoint } from '../tools/endpoints.ts';
import { mainApiUrl } from './check-port.ts';
import { runInterruptibly } from './interrupt.ts';
import { withStores } from './open-stores.ts';
import { openOwnKeys } from './own-keys.ts';
import { isId, pickByNameOrId } from './pick-named.ts';
import { toPrintable } from './print-table.ts';

/** The main API of an installation, for commands that any user of its API can run. */
export interface MainApiClient {
  readonly endpoint: string;
  /** Id of the workspace of the requests. Undefined: that of the key. */
  readonly workspaceId: string | undefined;
  /** Aborted by SIGINT (Ctrl-C) and SIGTERM, as are the requests of the client. */
  readonly interrupted: AbortSignal;
  /**
   * Sends a request. Resolves with the parsed body.
   *
   * @param parse Default: `JSON.parse`.
   * @throws BAD_REQUEST with the message of the response; PART_UNUSABLE if the API does not respond.
   */
  ask<Answer>(
    method: 'GET' | 'POST' | 'PATCH' | 'DELETE',
    path: string,
    body?: object,
    parse?: (text: string) => unknown,
  ): Promise<Answer>;
}

/** The options of all commands that use the main API. */
export interface MainApiOptions {
  /** Name or id. */
  readonly workspace?: string;
  readonly json?: boolean;
}

/** Time for which a key is valid that a command creates for itself. A command that takes longer gets another key. */
const defaultKeyLifeMs = 2 * 3_600_000;

/**
 * Opens the main API at `LANGSMITH_ENDPOINT` with `LANGSMITH_API_KEY`. Without an endpoint, it is that of the instance
 * that runs on the data folder. Without a key, the command creates one through the stores of this instance, which only
 * the operator can do, and revokes it when `work` has finished. If `work` fails because of a signal, the exit code is 130.
 *
 * @param keyLifeMs time for which such a key is valid; it is replaced before.
 * @throws INVALID_CONFIG, NOT_RUNNING, BAD_REQUEST if there is no such workspace, and the errors of `work`.
 */
export async function withMainApi(
  options: MainApiOptions,
  work: (client: MainApiClient) => Promise<void>,
  keyLifeMs = defaultKeyLifeMs,
): Promise<void> {
  await runInterruptibly((interrupted) => connect(options, work, interrupted, keyLifeMs));
}

async function connect(
  { workspace: named }: MainApiOptions,
  work: (client: MainApiClient) => Promise<void>,
  interrupted: AbortSignal,
  keyLifeMs: number,
): Promise<void> {
  const environment = readClientEnvironment();
  const endpoint = await findEndpoint(environment.endpoint, environment.key !== undefined);
  const { key } = environment;
  const open = async (getKey: () => Promise<string>, defaultWorkspace = environment.workspace) => {
    const createFor = (workspaceId?: string) => createClient(endpoint, getKey, workspaceId, interrupted);
    return createFor(named === undefined ? defaultWorkspace : await findWorkspaceId(createFor(), named));
  };
  if (key !== undefined) return work(await open(async () => key));
  if (environment.endpoint !== undefined) {
    const errors = '  - LANGSMITH_API_KEY is required: an API key of the installation at LANGSMITH_ENDPOINT.';
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  return withStores('deployments', async ({ logger, stores: { database } }) => {
    const operator = await loadOperator(database);
    const deps = { database, authenticator: createAuthenticator({ database, logger }) };
    const keys = await openOwnKeys(deps, operator, keyLifeMs);
    try {
      await work(await open(keys.getValid, environment.workspace ?? operator.workspaceId));
    } finally {
      await keys.close();
    }
  });
}

/** @throws BAD_REQUEST if the key has access to no such workspace. */
async function findWorkspaceId(client: MainApiClient, nameOrId: string): Promise<string> {
  // A key does not need the permission to list workspaces if the id is known.
  if (isId(nameOrId)) return nameOrId;
  const all = await client.ask<{ readonly id: string; readonly display_name: string }[]>('GET', '/workspaces');
  const named = all.map(({ id, display_name: name }) => ({ id, name }));
  return pickByNameOrId('workspace', nameOrId, named).id;
}

/** @throws INVALID_CONFIG; NOT_RUNNING and INSTANCE_NOT_READY if no address is known. */
async function findEndpoint(named: string | undefined, hasKey: boolean): Promise<string> {
  if (named !== undefined) {
    const endpoint = normaliseEndpoint(named);
    if (endpoint !== undefined) return endpoint;
    const errors = `  - LANGSMITH_ENDPOINT='${named}' must be an http or https URL.`;
    throw runlakeError('INVALID_CONFIG', { count: 1, errors });
  }
  const { config } = loadConfig();
  const running = await (hasKey ? findRunningInstance(config.dataDir) : readRunFile(config.dataDir));
  return running?.url ?? String(normaliseEndpoint(mainApiUrl(config, config.port)));
}

function createClient(
  endpoint: string,
  getKey: () => Promise<string>,
  workspaceId: string | undefined,
  interrupted: AbortSignal,
): MainApiClient {
  const headers = workspaceId === undefined ? {} : { 'x-tenant-id': workspaceId };
  return {
    endpoint,
    workspaceId,
    interrupted,
    async ask(method, path, body, parse = JSON.parse) {
      const response = await sendRequest(endpoint + path, {
        method,
        signal: interrupted,
        headers: { 'x-api-key': await getKey(), ...headers, ...(body && { 'content-type': 'application/json' }) },
        ...(body && { body: JSON.stringify(body) }),
      });
      const text = await readText(response, endpoint, interrupted);
      return (text === '' ? undefined : parseJson(text, endpoint, parse)) as never;
    },
  };
}

/** Sends a request and requires a status below 300. @throws BAD_REQUEST, PART_UNUSABLE, the reason of its signal */
export async function sendRequest(url: string, request: RequestInit): Promise<Response> {
  const { origin } = new URL(url);
  const response = await fetch(url, request).catch((cause: unknown) => {
    request.signal?.throwIfAborted();
    throw createEndpointError(`${origin} does not respond (${findCode(cause)})`, cause);
  });
  if (response.ok) return response;
  const text = await readText(response, origin, request.signal);
  throw runlakeError('BAD_REQUEST', {
    reason: toPrintable(explainResponse(text) ?? `${origin} responded ${response.status}.`),
  });
}

/** @throws PART_UNUSABLE, the reason of `signal` */
function readText(response: Response, endpoint: string, signal: AbortSignal | null | undefined): Promise<string> {
  return response.text().catch((cause: unknown) => {
    signal?.throwIfAborted();
    throw createEndpointError(`the response of ${endpoint} is incomplete (${findCode(cause)})`, cause);
  });
}

/** @throws PART_UNUSABLE */
function parseJson(text: string, endpoint: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(text);
  } catch (cause) {
    throw createEndpointError(`the response of ${endpoint} is not JSON`, cause);
  }
}

function createEndpointError(reason: string, cause: unknown): RunlakeError {
  const remedy = 'Check LANGSMITH_ENDPOINT, and that Runlake runs.';
  return runlakeError('PART_UNUSABLE', { reason, remedy }, { cause });
}

/** Returns the error code of a failed connection. */
function findCode(error: unknown): string {
  return ((error as Error).cause as NodeJS.ErrnoException | undefined)?.code ?? 'the connection broke';
}

/** Returns the message and the remedy in the body of an error response. */
function explainResponse(text: string): string | undefined {
  try {
    const { detail, message, remedy } = JSON.parse(text) as Record<string, unknown>;
    const said = typeof detail === 'string' ? detail : message;
    if (typeof said !== 'string') return undefined;
    // The messages of fields are not sentences.
    return typeof remedy === 'string' ? `${said.replace(/[^.!?]$/, '$&.')} ${remedy}` : said;
  } catch {
    return undefined;
  }
}
