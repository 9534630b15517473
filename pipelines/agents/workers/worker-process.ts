/**
 * A process that runs graph code.
 *
 * Invariant: nothing that graph code does is heard outside but through the messages of `worker-messages.ts`, and the front draws its
 * own conclusions from silence and from the end of this process.
 *
 *   1. `setup` comes. From there on TypeScript can be imported, where the project has any. The embedder of the store is loaded: where
 *      it cannot be used, this process says so and ends. Modules of graphs are imported one after the other, each announced before;
 *      what cannot be used is a fault of that graph.
 *   2. `ready` tells the faults. Runs and questions come and go, several at once.
 *   3. A beat each second says that the event loop turns.
 *   4. What is thrown outside of any run ends the process, with a last word. So does the end of the front: at once where the event
 *      loop turns, else by `parent-watch.ts`.
 */
import { tmpdir } from 'node:os';
import { resolve } from 'node:path';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import type { AppRoute } from '../app/app-route.ts';
import { type LoadedAuth, loadAuth } from '../auth/load-auth.ts';
import { type LoadedGraph, loadGraph } from '../graphs/load-graph.ts';
import { answerRequest } from '../requests/answer-request.ts';
import { loadEmbedder } from '../store/load-embedder.ts';
import type { StoreRules } from '../store/store-item.ts';
import { storeRules } from '../store/store-rules.ts';
import { openTracer } from '../traces/open-tracer.ts';
import { EventLoopTurn } from './event-loop-turn.ts';
import { executeJob } from './execute-job.ts';
import { limitsOfWorker } from './frames.ts';
import { openConnections } from './graph-connections.ts';
import { Outbox } from './outbox.ts';
import { openParentPipe } from './parent-pipe.ts';
import { watchParent } from './parent-watch.ts';
import { installProjectGlobals } from './project-globals.ts';
import { needsTypescript, readTypescript } from './read-typescript.ts';
import { refusalOf } from './refusal.ts';
import { openSavers, type SaverFor } from './saver-for.ts';
import { SendBuffers, type SendWindow } from './send-window.ts';
import { openStores, type StoreFor } from './store-for.ts';
import { isFailedWrite } from './thread-saver.ts';
import type { ToWorker, WorkerSetup } from './worker-messages.ts';

interface RunHere {
  readonly events: SendWindow;
  readonly stop: AbortController;
}

// Kept from graph code, which may put its own in its place.
const end = process.exit.bind(process);

const outbox = new Outbox(openParentPipe((message) => hear(message as ToWorker)));
const turn = new EventLoopTurn();
const graphs = new Map<string, LoadedGraph>();
const runs = new Map<number, RunHere>();
let setup: WorkerSetup;
let buffers: SendBuffers;
let saverFor: SaverFor;
let storeFor: StoreFor;
let rules: StoreRules;
let faults: Record<string, string> = {};
let auth: LoadedAuth | undefined;

process.on('uncaughtException', (error) => die(error));
process.on('unhandledRejection', (error) => {
  // What is left of a run that was stopped, or will say so at the end of its run.
  const isOfRun = isFailedWrite(error) || (isRunlakeError(error) && error.code === 'STREAM_BUFFER_FULL');
  if (!isOfRun && !(error instanceof Error && error.name === 'AbortError')) die(error);
});
watchParent();

function hear(message: ToWorker): void {
  switch (message.kind) {
    case 'setup':
      void start(message.setup);
      return;
    case 'run':
      void run(message);
      return;
    case 'cancel': {
      const here = runs.get(message.key);
      here?.stop.abort(message.why);
      here?.events.close();
      return;
    }
    case 'ack':
      runs.get(message.key)?.events.acknowledge(message.bytes);
      return;
    case 'ask':
      void answer(message);
      return;
    case 'auth':
      void answerAuth(message);
  }
}

async function start(given: WorkerSetup): Promise<void> {
  setup = given;
  outbox.limits = limitsOfWorker(setup.maxEventBytes);
  buffers = new SendBuffers(setup.maxBufferedBytes);
  faults = { ...setup.faults };
  setInterval(() => outbox.put({ kind: 'beat' }), setup.beatMs).unref();
  installProjectGlobals(setup.serverUrl);
  if (needsTypescript(setup)) await readTypescript();
  try {
    rules = await rulesOf(setup);
  } catch (error) {
    outbox.send({ kind: 'unfit', refusal: refusalOf({ kind: 'embed', texts: [] }, error) }, () => end(70));
    return;
  }
  const connections = openConnections(setup);
  saverFor = openSavers(connections);
  storeFor = openStores(connections, rules);
  for (const source of setup.graphs) {
    outbox.send({ kind: 'loading', graphId: source.graphId });
    try {
      graphs.set(source.graphId, await loadGraph(source));
    } catch (error) {
      faults = { ...faults, [source.graphId]: error instanceof Error ? error.message : String(error) };
    }
  }
  if (setup.auth !== undefined) {
    try {
      auth = await loadAuth(setup.auth);
    } catch (error) {
      faults = { ...faults, auth: error instanceof Error ? error.message : String(error) };
    }
  }
  let routes: readonly AppRoute[] = [];
  if (setup.app !== undefined) {
    try {
      const { serveApp } = await import('../app/serve-app.ts');
      routes = await serveApp(setup.app, resolve(tmpdir(), setup.app.socketPath));
    } catch (error) {
      faults = { ...faults, app: error instanceof Error ? error.message : String(error) };
    }
  }
  const nodes = Object.fromEntries([...graphs].flatMap(([id, graph]) => (graph.nodes ? [[id, graph.nodes]] : [])));
  outbox.put({ kind: 'ready', faults, routes, nodes });
}

async function rulesOf({ store }: WorkerSetup): Promise<StoreRules> {
  return storeRules(store ?? {}, store?.index && (await loadEmbedder(store.index.embed, store.folder)));
}

async function run({ key, job }: Extract<ToWorker, { kind: 'run' }>): Promise<void> {
  const graph = graphs.get(job.graphId);
  if (graph === undefined) {
    const message = faults[job.graphId] ?? `There is no graph '${job.graphId}'.`;
    outbox.put({ kind: 'ended', key, outcome: { kind: 'failed', error: 'GraphUnusable', message } });
    return;
  }
  const stop = new AbortController();
  let first = true;
  const events = buffers.open({
    windowBytes: setup.windowBytes,
    send: (chunk) => {
      outbox.putChunk(key, chunk);
      // A client waits for the first one, and the loop may not turn until the last; if others run here, it turns soon.
      if (first && runs.size === 1) outbox.flush();
      first = false;
    },
    onFull: (error) => stop.abort(error),
  });
  runs.set(key, { events, stop });
  const tracer = job.trace && openTracer(job.trace, (traced) => outbox.put({ kind: 'traced', key, traced }));
  const outcome = await executeJob(job, {
    graph,
    tracer: tracer?.handler,
    saverFor,
    storeFor,
    maxEventBytes: setup.maxEventBytes,
    events,
    stop,
    turn,
  });
  tracer?.close(`The run of the graph ended before this one did: ${outcome.kind}.`);
  events.close();
  runs.delete(key);
  outbox.put({ kind: 'ended', key, outcome });
}

async function answer({ key, request }: Extract<ToWorker, { kind: 'ask' }>): Promise<void> {
  try {
    outbox.put({
      kind: 'answer',
      key,
      json: await answerRequest(request, { graphs, faults, saverFor, storeFor, rules }),
    });
  } catch (error) {
    outbox.put({ kind: 'refusal', key, refusal: refusalOf(request, error) });
  }
}

async function answerAuth({ key, request }: Extract<ToWorker, { kind: 'auth' }>): Promise<void> {
  if (auth === undefined) return;
  const answer = 'identify' in request ? await auth.identify(request.identify) : await auth.judge(request.judge);
  let json: string;
  try {
    json = JSON.stringify(answer);
  } catch {
    const refusal = { status: 500, message: 'The custom authentication answered what is not JSON.' };
    json = JSON.stringify({ allowed: false, refusal });
  }
  outbox.put({ kind: 'answer', key, json });
}

function die(error: unknown): void {
  const reason = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  // A pipe that is full is not waited for long.
  setTimeout(() => end(70), 500).unref();
  outbox.send({ kind: 'dying', reason }, () => end(70));
}
