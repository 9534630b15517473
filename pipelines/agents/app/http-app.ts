/**
 * The custom app of a project (`http.app`), which runs in a process of its own.
 *
 * Invariant: each request ends once, and what the app does is heard only as an answer. 1. It is refused at once where the process is
 * not up or has too many. 2. It goes over a Unix socket that this account alone reaches; bodies flow in both directions as fast as the
 * slower side takes them. 3. It ends with its answer, with a limit of size or time, or when its client goes, which the app hears as the
 * abort of its request. 4. Where the process goes meanwhile, so do its requests; another process follows.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { type Dispatcher, errors, Pool } from 'undici';
import { fault, isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Logger } from '../../../infra/telemetry/logger.ts';
import type { GraphsFile } from '../graphs/graphs-file.ts';
import { KeptWorker } from '../workers/kept-worker.ts';
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
const loadWithinMs = 120_000;

/**
 * Starts that process for the `http.app` of a langgraph.json.
 *
 * @throws GRAPHS_FILE_INVALID where what `http.app` names cannot be used.
 */
export async function openHttpApp(options: {
  readonly file: Pick<GraphsFile, 'path' | 'folder' | 'env'> & { readonly app: NonNullable<GraphsFile['app']> };
  readonly environment: Readonly<Record<string, string>>;
  readonly silentMs: number;
  /** Longest time to the head of an answer, and between two pieces of its body. */
  readonly timeoutMs: number;
  readonly logger: Logger;
}): Promise<HttpApp> {
  const { file, environment, silentMs, timeoutMs, logger } = options;
  const folder = await mkdtemp(join(tmpdir(), 'runlake-app-'));
  const socketPath = join(folder, 'app.sock');
  const pool = new Pool('http://app', {
    connect: { socketPath },
    connections: mostAtOnce,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    maxHeaderSize: 1024 * 1024,
  });
  const unusable = (reason: string) => fault('GRAPHS_FILE_INVALID', { file: file.path, place: 'http.app', reason });
  let names: HttpApp['names'] = () => false;
  let underWay = 0;
  let closing = false;
  let opened!: () => void;
  let failed!: (error: unknown) => void;
  const open = new Promise<void>((resolve, reject) => {
    opened = resolve;
    failed = reject;
  });

  const worker = new KeptWorker(
    () => ({
      setup: {
        graphs: [],
        app: { path: file.app.path, name: file.app.name, socketPath },
        maxConnections: 1,
        maxEventBytes: 1,
        creditBytes: 1,
        beatMs: Math.min(1_000, silentMs / 4),
      },
      folder: file.folder,
      environment: { ...environment, ...file.env },
      heapMegabytes: undefined,
      silentMs,
      loadWithinMs,
      onLine: (line) => logger.info({ line }, 'the custom app wrote'),
    }),
    {
      onReady: ({ app }, routes) => {
        if (app !== undefined) return failed(unusable(app));
        names = routeNames(routes);
        opened();
      },
      onMessage: () => undefined,
      onGone: ({ reason }) => {
        if (closing) return;
        logger.warn({ reason }, 'the process of the custom app has gone');
        failed(unusable(`its process ended: ${reason}`));
      },
    },
  );

  async function close(): Promise<void> {
    closing = true;
    await worker.stop('the agent server stops');
    await pool.destroy();
    await rm(folder, { recursive: true, force: true });
  }

  try {
    await open;
  } catch (error) {
    await close();
    throw error;
  }
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
    close,
  };
}
