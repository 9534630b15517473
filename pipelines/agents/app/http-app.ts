/**
 * Runs the custom app of a project (`http.app`) in a process of its own.
 *
 * Invariant: each request ends exactly once, and the app can affect this process only through its HTTP responses.
 *
 *   1. A request fails at once if the process is not ready or has too many requests in flight.
 *   2. The request goes over a Unix socket that only this account can reach. Bodies stream in both directions with
 *      backpressure.
 *   3. The request ends with the response, at a size limit or timeout, or when the client disconnects. A disconnect
 *      aborts the request that the app sees.
 *   4. If the process exits, its requests fail and the worker handle starts another process.
 */
import { randomUUID } from 'node:crypto';
import { lstatSync, renameSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type Dispatcher, errors, Pool } from 'undici';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import { deleteTree } from '../../../infra/isolation/untrusted-tree.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { createViolationError } from '../workers/frames.ts';
import { openModuleWorker } from '../workers/front/module-worker.ts';
import { createRouteMatcher } from './app-route.ts';

export interface HttpApp {
  /** Returns true if the app itself defines this route. */
  names(method: string, path: string): boolean;
  /**
   * Resolves with the head of the response. The caller must read or destroy the body.
   *
   * @throws APP_UNAVAILABLE, APP_FAILED, APP_TIMEOUT; errors of the request body; the reason of `signal`.
   */
  send(request: AppRequest): Promise<AppResponse>;
  close(): Promise<void>;
}

export interface AppRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Alternating names and values of the headers. */
  readonly headers: string[];
  readonly body: Readable | null;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
}

export interface AppResponse {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Readable;
}

const maxConcurrentRequests = 1_000;
const socketFileName = 'app.sock';

/**
 * Starts the process for the `http.app` of a langgraph.json. Resolves when the app is loaded.
 *
 * @throws GRAPHS_FILE_INVALID if `http.app` cannot be loaded or is not an app.
 */
export async function openHttpApp(options: {
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'> & { readonly app: NonNullable<GraphsFile['app']> };
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: AccountSource | undefined;
  /** URL of the agent server, for clients that the app creates. */
  readonly serverUrl?: string | undefined;
  /** Maximum time without a message from the process. */
  readonly heartbeatTimeoutMs: number;
  /** Timeout for the head of a response, and maximum time between two chunks of its body. */
  readonly timeoutMs: number;
  readonly logger: Logger;
}): Promise<HttpApp> {
  const { file, environment, accounts, serverUrl, heartbeatTimeoutMs, timeoutMs, logger } = options;
  const folder = await mkdtemp(join(tmpdir(), 'runlake-app-'));
  const socketPath = join(folder, socketFileName);
  const pool = new Pool('http://app', {
    connect: { socketPath },
    connections: maxConcurrentRequests,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    maxHeaderSize: 1024 * 1024,
  });
  let names: HttpApp['names'] = () => false;
  let inFlight = 0;
  let isClosing = false;
  /** Folder in which the process listens: the home folder of its account, if the process has a separate account. */
  let socketFolder: string | undefined;
  const trackedAccounts = accounts && {
    take() {
      const account = accounts.take();
      socketFolder = account.home;
      return account;
    },
  };
  const release = async () => {
    await pool.destroy();
    await deleteTree(folder);
  };

  const worker = await openModuleWorker({
    part: 'app',
    setup: {
      app: { path: file.app.path, name: file.app.name, socketPath: accounts ? socketFileName : socketPath },
      ...(serverUrl !== undefined && { serverUrl }),
    },
    file,
    environment,
    accounts: trackedAccounts,
    heartbeatTimeoutMs,
    onLine: (line) => logger.info({ line }, 'output of the custom app'),
    hooks: {
      onReady: (_loadErrors, routes) => {
        if (socketFolder !== undefined) moveSocket(join(socketFolder, socketFileName), socketPath);
        names = createRouteMatcher(routes);
      },
      onMessage: ({ kind }) => {
        throw createViolationError(`an unexpected message '${kind}' from the process of the custom app`);
      },
      onExit: ({ reason }) => {
        if (!isClosing) logger.warn({ reason }, 'process of the custom app ended');
      },
    },
  }).catch(async (error: unknown) => {
    await release();
    throw error;
  });
  return {
    names: (method, path) => names(method, path),
    async send({ method, target, headers, body, signal }) {
      if (!worker.ready) throw runlakeError('APP_UNAVAILABLE', { reason: 'its process is not ready' });
      if (inFlight >= maxConcurrentRequests)
        throw runlakeError('APP_UNAVAILABLE', { reason: `it has ${maxConcurrentRequests} requests in flight` });
      inFlight += 1;
      try {
        const sent = { method: method as Dispatcher.HttpMethod, path: target, headers, body, signal };
        const response = await pool.request(sent);
        response.body.once('close', () => {
          inFlight -= 1;
        });
        return { status: response.statusCode, headers: response.headers, body: response.body };
      } catch (error) {
        inFlight -= 1;
        if (signal.aborted || isRunlakeError(error)) throw error;
        if (error instanceof errors.HeadersTimeoutError)
          throw runlakeError('APP_TIMEOUT', { seconds: timeoutMs / 1_000 });
        throw runlakeError('APP_FAILED', {}, { cause: error });
      }
    },
    async close() {
      isClosing = true;
      await worker.stop('the agent server stops');
      await release();
    },
  };
}

/**
 * Moves the socket to a folder that the app's process cannot write to. Otherwise the process could replace the socket
 * with a link to any other socket of the machine.
 *
 * @throws WORKER_PROTOCOL_VIOLATED if `from` is not a socket.
 */
function moveSocket(from: string, to: string): void {
  try {
    renameSync(from, to);
    if (lstatSync(to).isSocket()) return;
    // Deleted with the folder, because the process may still be in it.
    renameSync(to, `${to}-${randomUUID()}`);
  } catch {
    // The file does not exist.
  }
  throw createViolationError('no socket at the path where the custom app must listen');
}
