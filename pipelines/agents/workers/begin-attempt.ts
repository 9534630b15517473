import { fault } from '../../../infra/errors/runlake-error.ts';
import type { CompiledGraph } from '../graphs/compiled-graph.ts';
import { goesToEnd, nodesOf, requireNodes, unknownBreakpoints } from '../graphs/graph-nodes.ts';
import type { LoadedGraph } from '../graphs/load-graph.ts';
import type { CheckpointChoice } from '../runs/run.ts';
import { goToEnd } from './go-to-end.ts';
import { libraryCommand, libraryConfig } from './run-config.ts';
import { stoppedAtHead, stoppedWithin } from './stopped-at-head.ts';
import type { ThreadSaver } from './thread-saver.ts';
import type { ToWorker } from './worker-messages.ts';

export type Job = Extract<ToWorker, { kind: 'run' }>['job'];

interface Beginning {
  readonly loaded: LoadedGraph;
  readonly graph: CompiledGraph;
  readonly saver: ThreadSaver;
  /** That the graph was made with: {@link configOf} the job. */
  readonly config: object;
  /** Tells the readers of the run. */
  readonly warn: (message: string) => void;
}

/**
 * What the library is given for an attempt. It is looked for what it would pass over without a word: nodes and a checkpoint that are
 * not there, a stop at which an earlier attempt died, and an answer which that one has given already.
 *
 * @returns undefined where the run is to stop where it stands.
 * @throws GRAPH_NODE_UNKNOWN, CHECKPOINT_NOT_FOUND, and what the graph and its saver throw.
 */
export async function beginAttempt(
  job: Job,
  { loaded, graph, saver, config, warn }: Beginning,
): Promise<{ readonly input: unknown; readonly options: object } | undefined> {
  const { attempt, kwargs, runId, start, threadId } = job;
  for (const message of checkNodes(job, loaded, graph)) warn(message);
  await checkPlace(job, saver);
  const stops = { before: kwargs.interrupt_before, after: kwargs.interrupt_after };
  const isKeptHere = graph.checkpointer === saver;
  if (isKeptHere && start.kind === 'continue' && (await stoppedAtHead(graph, saver, threadId, stops))) return undefined;
  const isNew = start.kind === 'input' && start.checkpoint === 'none';
  if (isKeptHere && attempt > 1 && !isNew) saver.hold(await stoppedWithin(graph, saver, runId, placeOf(job)));
  const ends = goesToEnd(kwargs.command);
  if (ends) await goToEnd(graph, config, start.kind === 'continue' ? undefined : kwargs.command?.update);
  if (!ends && !(await isAnswered(job, saver)))
    return { input: inputOf(job), options: { ...config, ...optionsOf(job) } };
  return { input: null, options: { ...configOf({ ...job, start: { kind: 'continue' } }), ...optionsOf(job) } };
}

/** The config of a run, as the library takes it. */
export function configOf({ kwargs, start, threadId, runId, graphId, assistantId, attempt }: Job) {
  const from = checkpointOf(start);
  const ids = { run_id: runId, graph_id: graphId, assistant_id: assistantId };
  const config = libraryConfig(kwargs.config, {
    threadId,
    ...(from !== undefined && { checkpoint: from }),
    configurable: ids,
  });
  return {
    ...config,
    metadata: { ...(config.metadata as object | undefined), ...ids, thread_id: threadId, run_attempt: attempt },
    ...(kwargs.context !== undefined && kwargs.context !== null && { context: kwargs.context }),
  };
}

/** Of the library alone, of one checkpoint alone, or what handlers of custom authentication may have put credentials into. */
const notInCheckpoints = new Set([
  ...['run_id', 'thread_id', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
  'langgraph_auth_user',
]);

/** What each checkpoint of a run says of it: its metadata and its configurable values, by which a history can be filtered. */
export function checkpointMetadata({ kwargs }: Job): Record<string, unknown> {
  const { configurable = {}, metadata } = kwargs.config;
  const shown = Object.entries(configurable).filter(([name]) => !name.startsWith('__') && !notInCheckpoints.has(name));
  return { ...Object.fromEntries(shown), ...(metadata as object | undefined) };
}

function inputOf({ kwargs, start }: Job): unknown {
  if (start.kind === 'continue') return null;
  if (kwargs.command !== undefined && kwargs.command !== null) return libraryCommand(kwargs.command);
  return kwargs.input ?? null;
}

function optionsOf({ kwargs }: Job): object {
  return {
    durability: kwargs.durability,
    ...(kwargs.interrupt_before !== undefined && { interruptBefore: kwargs.interrupt_before }),
    ...(kwargs.interrupt_after !== undefined && { interruptAfter: kwargs.interrupt_after }),
  };
}

/**
 * The process that made the run may not know the nodes of its graph. @returns warnings. @throws GRAPH_NODE_UNKNOWN
 */
function checkNodes({ kwargs, graphId }: Job, loaded: LoadedGraph, graph: CompiledGraph): readonly string[] {
  const { interrupt_before, interrupt_after, command } = kwargs;
  if (interrupt_before === undefined && interrupt_after === undefined && command === undefined) return [];
  const nodes = loaded.nodes ?? nodesOf(graph);
  if (nodes === undefined) return [];
  requireNodes(graphId, nodes, command);
  return unknownBreakpoints(graphId, nodes, kwargs);
}

/**
 * An earlier attempt may have got as far as the next question without a checkpoint on the thread itself, in a graph within or in one
 * node: given once more, the answer would be taken for that to the next one. Of several answers by the ids of their questions each
 * is given again, since some may not have been taken.
 */
async function isAnswered({ attempt, start, kwargs, threadId }: Job, saver: ThreadSaver): Promise<boolean> {
  const resume = kwargs.command?.resume ?? undefined;
  if (attempt === 1 || start.kind === 'continue' || resume === undefined) return false;
  const names = typeof resume === 'object' ? Object.keys(resume) : [];
  if (names.length > 1 && names.every((name) => /^[0-9a-f]{32}$/.test(name))) return false;
  return saver.leaveOutAnswer(threadId);
}

/** That is begun on where it is not the head, nor nothing. */
function checkpointOf(start: Job['start']): CheckpointChoice | undefined {
  return start.kind === 'input' && start.checkpoint !== 'none' ? start.checkpoint : undefined;
}

/** Where the attempt begins. */
function placeOf({ start, threadId }: Job) {
  const { checkpoint_id } = checkpointOf(start) ?? {};
  return { configurable: { thread_id: threadId, ...(checkpoint_id !== undefined && { checkpoint_id }) } };
}

/** The library starts from nothing, without a word, where the checkpoint that it is given does not exist. */
async function checkPlace({ start, threadId }: Job, saver: ThreadSaver): Promise<void> {
  const from = checkpointOf(start);
  if (from?.checkpoint_id === undefined) return;
  const { checkpoint_id, checkpoint_ns = '' } = from;
  const found = await saver.getTuple({ configurable: { thread_id: threadId, checkpoint_ns, checkpoint_id } });
  if (found !== undefined) return;
  throw fault('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: checkpoint_id });
}
