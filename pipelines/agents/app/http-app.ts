/**
 * The custom app of a project (`http.app`), which runs in a process of its own.
 *
 * Invariant: each request ends once, and what the app does is heard only as an answer. 1. It is refused at once where the process is
 * not up or has too many. 2. It goes over a Unix socket that this account alone reaches; bodies flow in both directions as fast as the
 * slower side takes them. 3. It ends with its answer, with a limit of size or time, or when its client goes, which the app hears as the
 * abort of its request. 4. Where the process goes meanwhile, so do its requests; another process follows.
 */
import { lstatSync, renameSync, rmSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type Dispatcher, errors, Pool } from 'undici';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { AccountSource } from '../../../infra/isolation/process-accounts.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { violation } from '../workers/frames.ts';
import { openModuleWorker } from '../workers/open-module-worker.ts';
import { routeNames } from './app-route.ts';

export interface HttpApp {
  /** Whether the app itself names that route. */
  names(method: string, path: string): boolean;
  /**
   * Resolves with the head of the answer. Its body has to be read or destroyed.
   *
   * @throws APP_UNAVAILABLE, APP_FAILED, APP_TIMEOUT; what the body of the request throws; the reason of `signal`.
   */
  send(request: AppRequest): Promise<AppAnswer>;
  /** Of its process. */
  readonly pid: number | undefined;
  close(): Promise<void>;
}

export interface AppRequest {
  readonly method: string;
  /** Path and query. */
  readonly target: string;
  /** Names and values in turn. */
  readonly headers: string[];
  readonly body: Readable | null;
  /** Aborted when the client has gone. */
  readonly signal: AbortSignal;
}

export interface AppAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Readable;
}

const mostAtOnce = 1_000;
const socketName = 'app.sock';

/**
 * Starts that process for the `http.app` of a langgraph.json.
 *
 * @throws GRAPHS_FILE_INVALID where what `http.app` names cannot be used.
 */
export async function openHttpApp(options: {
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'> & { readonly app: NonNullable<GraphsFile['app']> };
  readonly environment: Readonly<Record<string, string>>;
  readonly accounts?: AccountSource | undefined;
  /** Where the agent server answers, for the app. */
  readonly serverUrl?: string | undefined;
  readonly silentMs: number;
  /** Longest time to the head of an answer, and between two pieces of its body. */
  readonly timeoutMs: number;
  readonly logger: Logger;
}): Promise<HttpApp> {
  const { file, environment, accounts, serverUrl, silentMs, timeoutMs, logger } = options;
  const folder = await mkdtemp(join(tmpdir(), 'runlake-app-'));
  const socketPath = join(folder, socketName);
  const pool = new Pool('http://app', {
    connect: { socketPath },
    connections: mostAtOnce,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    maxHeaderSize: 1024 * 1024,
  });
  let names: HttpApp['names'] = () => false;
  let underWay = 0;
  let closing = false;
  /** Where the process listens: in its own folder, if it has one. */
  let listensIn: string | undefined;
  const ownAccounts = accounts && {
    take() {
      const account = accounts.take();
      listensIn = account.home;
      return account;
    },
  };
  const release = async () => {
    await pool.destroy();
    await rm(folder, { recursive: true, force: true });
  };

  const worker = await openModuleWorker({
    part: 'app',
    setup: {
      app: { path: file.app.path, name: file.app.name, socketPath: accounts ? socketName : socketPath },
      ...(serverUrl !== undefined && { serverUrl }),
    },
    file,
    environment,
    accounts: ownAccounts,
    silentMs,
    onLine: (line) => logger.info({ line }, 'the custom app wrote'),
    hooks: {
      onReady: (_faults, routes) => {
        if (listensIn !== undefined) takeSocket(join(listensIn, socketName), socketPath);
        names = routeNames(routes);
      },
      onMessage: ({ kind }) => {
        throw violation(`a message '${kind}' of the process of the custom app`);
      },
      onGone: ({ reason }) => {
        if (!closing) logger.warn({ reason }, 'the process of the custom app has gone');
      },
    },
  }).catch(async (error: unknown) => {
    await release();
    throw error;
  });
  return {
    names: (method, path) => names(method, path),
    get pid() {
      return worker.pid;
    },
    async send({ method, target, headers, body, signal }) {
      if (!worker.ready) throw fault('APP_UNAVAILABLE', { reason: 'its process is not up' });
      if (underWay >= mostAtOnce) throw fault('APP_UNAVAILABLE', { reason: 'it has too many requests' });
      underWay += 1;
      try {
        const sent = { method: method as Dispatcher.HttpMethod, path: target, headers, body, signal };
        const answer = await pool.request(sent);
        answer.body.once('close', () => {
          underWay -= 1;
        });
        return { status: answer.statusCode, headers: answer.headers, body: answer.body };
      } catch (error) {
        underWay -= 1;
        if (signal.aborted || isRunlakeError(error)) throw error;
        if (error instanceof errors.HeadersTimeoutError) throw fault('APP_TIMEOUT', { seconds: timeoutMs / 1_000 });
        throw fault('APP_FAILED', {}, { cause: error });
      }
    },
    async close() {
      closing = true;
      await worker.stop('the agent server stops');
      await release();
    },
  };
}

/**
 * Moves a socket out of the reach of the process that listens on it: a link in its place could lead this process to any socket of the
 * machine. The name changes, the socket stays the same.
 *
 * @throws WORKER_PROTOCOL_VIOLATED where it is none.
 */
function takeSocket(from: string, to: string): void {
  try {
    renameSync(from, to);
    if (lstatSync(to).isSocket()) return;
  } catch {
    // There is nothing.
  }
  rmSync(to, { recursive: true, force: true });
  throw violation('there is no socket where the custom app has to listen');
}
