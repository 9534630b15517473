/**
 * Entry point of a worker process, which runs graph code.
 *
 * Invariant: the worker communicates with the parent process only through the messages of `message-codec.ts`. The
 * parent process detects a hung or dead worker by missing heartbeats or by the exit of this process.
 *
 *   1. The parent process sends `setup`. If the project contains TypeScript, the worker installs a loader for it. The
 *      worker loads the embedder of the store; if that fails, it sends `unusable` and exits. It imports the graph
 *      modules one after the other and announces each module with `loading`; an import error makes only that graph
 *      unusable.
 *   2. The worker sends `ready` with the reasons why graphs are unusable. It then executes runs and answers queries
 *      concurrently.
 *   3. The worker sends `heartbeat` at a fixed interval, which proves that its event loop is not blocked.
 *   4. An error that is thrown outside of any run ends the process after a `dying` message. The process also ends when
 *      the parent process ends: either the pipe closes or, if the event loop is blocked, `outbox.ts` kills the
 *      process.
 */
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';
import pg from 'pg';
import { isRunlakeError } from '../../../../infra/errors/runlake-error.ts';
import { parsePostgresAddress } from '../../../../infra/postgres/address.ts';
import type { AppRoute } from '../../app/app-route.ts';
import { type LoadedAuth, loadAuth } from '../../auth/load-auth.ts';
import { type LoadedGraph, loadGraph } from '../../graphs/load-graph.ts';
import { handleQuery } from '../../requests/handle-query.ts';
import { loadEmbedder, openStores, type StoreFactory } from '../../store/agent-store.ts';
import { buildStoreConfig, type StoreConfig } from '../../store/store-item.ts';
import { openTracer } from '../../traces/run-tracer.ts';
import { computeWorkerFrameLimits } from '../frames.ts';
import type { MessageToWorker, WorkerSetup } from '../messages.ts';
import { installTypescriptLoader, needsTypescript } from '../read-typescript.ts';
import { formatProjectError, serializeError } from '../serialized-error.ts';
import { EventLoopTurn } from './event-loop-turn.ts';
import { executeJob, NodeCounter } from './execute-job.ts';
import { Outbox, openParentPipe, watchParent } from './outbox.ts';
import { installProjectGlobals } from './project-globals.ts';
import { SendBuffers, type SendWindow } from './send-window.ts';
import { isFailedWrite, openSavers, type SaverFactory } from './thread-saver.ts';

interface ActiveRun {
  readonly events: SendWindow;
  readonly stop: AbortController;
}

// Bind `process.exit` now, because graph code may replace it later.
const exit = process.exit.bind(process);

const outbox = new Outbox(openParentPipe((message) => receive(message as MessageToWorker)));
const graphs = new Map<string, LoadedGraph>();
const runs = new Map<number, ActiveRun>();
let setup: WorkerSetup;
let buffers: SendBuffers;
let turn: EventLoopTurn;
let saverFor: SaverFactory;
let storeFor: StoreFactory;
let storeConfig: StoreConfig;
const loadErrors = new Map<string, string>();
let auth: LoadedAuth | undefined;

process.on('uncaughtException', (error) => exitAfterError(error));
process.on('unhandledRejection', (error) => {
  // The process must continue after a rejection of an aborted run, and after an error that the outcome of the run
  // reports.
  const isRunError = isFailedWrite(error) || (isRunlakeError(error) && error.code === 'STREAM_BUFFER_FULL');
  if (!isRunError && !(error instanceof Error && error.name === 'AbortError')) exitAfterError(error);
});
watchParent();

function receive(message: MessageToWorker): void {
  switch (message.kind) {
    case 'setup':
      void startWorker(message.setup);
      return;
    case 'run':
      void executeRun(message);
      return;
    case 'cancel': {
      const active = runs.get(message.key);
      active?.stop.abort(message.why);
      active?.events.close();
      return;
    }
    case 'ack':
      runs.get(message.key)?.events.acknowledge(message.bytes);
      return;
    case 'query':
      void runQuery(message);
      return;
    case 'auth':
      void executeAuth(message);
  }
}

async function startWorker(receivedSetup: WorkerSetup): Promise<void> {
  setup = receivedSetup;
  outbox.limits = computeWorkerFrameLimits(setup.maxEventBytes);
  turn = new EventLoopTurn(2 * setup.heartbeatMs);
  buffers = new SendBuffers(setup.maxBufferedBytes);
  for (const [graphId, reason] of Object.entries(setup.loadErrors ?? {})) loadErrors.set(graphId, reason);
  setInterval(() => outbox.put({ kind: 'heartbeat' }), setup.heartbeatMs).unref();
  installProjectGlobals(setup.serverUrl);
  if (needsTypescript(setup)) await installTypescriptLoader();
  try {
    storeConfig = await loadStoreConfig(setup);
  } catch (error) {
    outbox.send({ kind: 'unusable', error: serializeError({ kind: 'embed', texts: [] }, error) }, () => exit(70));
    return;
  }
  const connections = openConnections(setup);
  saverFor = openSavers(connections);
  storeFor = openStores(connections, storeConfig);
  for (const source of setup.graphs) {
    outbox.send({ kind: 'loading', graphId: source.graphId });
    try {
      graphs.set(source.graphId, await loadGraph(source));
    } catch (error) {
      loadErrors.set(source.graphId, error instanceof Error ? error.message : String(error));
    }
  }
  if (setup.auth !== undefined) {
    try {
      auth = await loadAuth(setup.auth);
    } catch (error) {
      loadErrors.set('auth', error instanceof Error ? error.message : String(error));
    }
  }
  let routes: readonly AppRoute[] = [];
  if (setup.app !== undefined) {
    try {
      const { serveApp } = await import('../../app/serve-app.ts');
      routes = await serveApp(setup.app, resolve(tmpdir(), setup.app.socketPath));
    } catch (error) {
      loadErrors.set('app', error instanceof Error ? error.message : String(error));
    }
  }
  const nodes = Object.fromEntries([...graphs].flatMap(([id, graph]) => (graph.nodes ? [[id, graph.nodes]] : [])));
  outbox.put({ kind: 'ready', loadErrors: Object.fromEntries(loadErrors), routes, nodes });
}

async function loadStoreConfig({ store }: WorkerSetup): Promise<StoreConfig> {
  return buildStoreConfig(store ?? {}, store?.index && (await loadEmbedder(store.index.embed, store.folder)));
}

async function executeRun({ key, job }: Extract<MessageToWorker, { kind: 'run' }>): Promise<void> {
  const graph = graphs.get(job.graphId);
  if (graph === undefined) {
    const message = loadErrors.get(job.graphId) ?? `Graph '${job.graphId}' does not exist.`;
    outbox.put({ kind: 'ended', key, nodes: 0, outcome: { kind: 'failed', error: 'GraphUnusable', message } });
    return;
  }
  const stop = new AbortController();
  let isFirstEvent = true;
  const events = buffers.open({
    windowBytes: setup.windowBytes,
    send: (chunk) => {
      outbox.putChunk(key, chunk);
      // Send the first event at once. If this is the only run, the outbox might otherwise not flush before the last
      // event.
      if (isFirstEvent && runs.size === 1) outbox.flush();
      isFirstEvent = false;
    },
    onFull: (error) => stop.abort(error),
  });
  runs.set(key, { events, stop });
  const tracer = job.trace && openTracer(job.trace, (traced) => outbox.put({ kind: 'traced', key, traced }));
  const nodes = new NodeCounter();
  const outcome = await executeJob(job, {
    graph,
    handlers: tracer === undefined ? [nodes] : [tracer.handler, nodes],
    saverFor,
    storeFor,
    maxEventBytes: setup.maxEventBytes,
    events,
    stop,
    turn,
  });
  tracer?.close(`The graph run ended before this child run: ${outcome.kind}.`);
  events.close();
  runs.delete(key);
  outbox.put({ kind: 'ended', key, nodes: nodes.count, outcome });
}

async function runQuery({ key, request }: Extract<MessageToWorker, { kind: 'query' }>): Promise<void> {
  try {
    outbox.put({
      kind: 'response',
      key,
      json: await handleQuery(request, { graphs, loadErrors, saverFor, storeFor, config: storeConfig }),
    });
  } catch (error) {
    outbox.put({ kind: 'query-error', key, error: serializeError(request, error) });
  }
}

async function executeAuth({ key, request }: Extract<MessageToWorker, { kind: 'auth' }>): Promise<void> {
  if (auth === undefined) return;
  const result =
    'identify' in request ? await auth.identify(request.identify) : await auth.authorize(request.authorize);
  let json: string;
  try {
    json = JSON.stringify(result);
  } catch {
    const rejection = {
      status: 500,
      message: 'The custom authentication handler returned a value that cannot be encoded as JSON.',
    };
    json = JSON.stringify({ allowed: false, rejection });
  }
  outbox.put({ kind: 'response', key, json });
}

function exitAfterError(error: unknown): void {
  const reason = formatProjectError(error);
  // Exit even if the pipe is full and the message cannot be written.
  setTimeout(() => exit(70), 500).unref();
  outbox.send({ kind: 'dying', reason }, () => exit(70));
}

/**
 * Opens the connection pool of a worker process, for checkpoints and store. The pool connects when the first statement
 * is executed.
 */
function openConnections({ database, maxConnections }: WorkerSetup): pg.Pool | undefined {
  if (database === undefined) return undefined;
  const pool = new pg.Pool({
    ...parsePostgresAddress(database.url, database.authorities),
    application_name: 'runlake-graphs',
    max: maxConnections,
    connectionTimeoutMillis: 10_000,
    idleTimeoutMillis: 30_000,
    keepAlive: true,
  });
  // Without this listener, an error on an idle connection would end the process.
  pool.on('error', () => undefined);
  return pool;
}
