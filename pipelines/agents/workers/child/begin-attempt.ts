import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { type CompiledGraph, collectInterrupts, readSnapshot } from '../../graphs/compiled-graph.ts';
import { isEndCommand, listUnknownBreakpoints, readNodes, requireNodes } from '../../graphs/graph-nodes.ts';
import type { LoadedGraph } from '../../graphs/load-graph.ts';
import { type CheckpointReference, listAnsweredInterrupts, type RunCommand } from '../../runs/run.ts';
import type { MessageToWorker } from '../messages.ts';
import { toLibraryCommand, toLibraryConfig } from './run-config.ts';
import { findStoppedSubgraphs, isStoppedAtHead } from './stopped-at-head.ts';
import type { ThreadSaver } from './thread-saver.ts';

export type Job = Extract<MessageToWorker, { kind: 'run' }>['job'];

interface AttemptContext {
  readonly loaded: LoadedGraph;
  readonly graph: CompiledGraph;
  readonly saver: ThreadSaver;
  /** The config with which the graph instance was created: the result of {@link buildConfig} for the job. */
  readonly config: object;
  /** Sends a warning event to the readers of the run. */
  readonly warn: (message: string) => void;
}

/**
 * Computes the input and options that LangGraph receives for an attempt. Also handles conditions that LangGraph ignores
 * silently: unknown nodes, a missing checkpoint, a breakpoint at which an earlier attempt died, and a resume value that
 * an earlier attempt has already used.
 *
 * @returns undefined if the run is already at a breakpoint and must stop there.
 * @throws GRAPH_NODE_UNKNOWN, CHECKPOINT_NOT_FOUND, and errors of the graph and its saver.
 */
export async function beginAttempt(
  job: Job,
  { loaded, graph, saver, config, warn }: AttemptContext,
): Promise<{ readonly input: unknown; readonly options: object } | undefined> {
  const { attempt, kwargs, runId, start, threadId } = job;
  for (const message of checkNodes(job, loaded, graph)) warn(message);
  await requireCheckpoint(job, saver);
  const breakpoints = { before: kwargs.interrupt_before, after: kwargs.interrupt_after };
  const usesThreadSaver = graph.checkpointer === saver;
  if (usesThreadSaver && start.kind === 'continue' && (await isStoppedAtHead(graph, saver, threadId, breakpoints)))
    return undefined;
  const startsWithoutState = start.kind === 'input' && start.checkpoint === 'none';
  if (usesThreadSaver && attempt > 1 && !startsWithoutState)
    saver.markInterrupted(await findStoppedSubgraphs(graph, saver, runId, buildStartConfig(job)));
  const goesToEndNode = isEndCommand(kwargs.command);
  if (goesToEndNode) await goToEnd(graph, config, start.kind === 'continue' ? undefined : kwargs.command?.update);
  if (!goesToEndNode && !(await isResumeConsumed(job, saver)))
    return { input: await buildInput(job, graph), options: { ...config, ...buildOptions(job) } };
  return { input: null, options: { ...buildConfig({ ...job, start: { kind: 'continue' } }), ...buildOptions(job) } };
}

/** Converts the config of a run to the form that LangGraph expects. */
export function buildConfig({ kwargs, start, threadId, runId, graphId, assistantId, attempt }: Job) {
  const from = chooseStartCheckpoint(start);
  const ids = { run_id: runId, graph_id: graphId, assistant_id: assistantId };
  const config = toLibraryConfig(kwargs.config, {
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

/**
 * Keys of `configurable` that checkpoints must not contain: internals of LangGraph, ids of a single run or checkpoint,
 * and the auth user, which may contain credentials.
 */
const keysExcludedFromCheckpoints = new Set([
  ...['run_id', 'thread_id', 'checkpoint_id', 'checkpoint_ns', 'checkpoint_map'],
  'langgraph_auth_user',
]);

/**
 * Returns the metadata and the configurable values of the run. They are stored in each checkpoint, so that clients can
 * filter a history by them.
 */
export function buildCheckpointMetadata({ kwargs }: Job): Record<string, unknown> {
  const { configurable = {}, metadata } = kwargs.config;
  const entries = Object.entries(configurable).filter(
    ([name]) => !name.startsWith('__') && !keysExcludedFromCheckpoints.has(name),
  );
  return { ...Object.fromEntries(entries), ...(metadata as object | undefined) };
}

async function buildInput(job: Job, graph: CompiledGraph): Promise<unknown> {
  const { kwargs, start } = job;
  if (start.kind === 'continue') return null;
  if (kwargs.command === undefined || kwargs.command === null) return kwargs.input ?? null;
  return toLibraryCommand(await nameFalsyResume(kwargs.command, job, graph));
}

/**
 * Gives a resume value such as `false` to the first open interrupt by its id. LangGraph accepts any value with an id,
 * but without an id it takes a falsy value for none, and the run would fail.
 */
async function nameFalsyResume(command: RunCommand, job: Job, graph: CompiledGraph): Promise<RunCommand> {
  const { resume } = command;
  if (resume !== false && resume !== 0 && resume !== '') return command;
  const open = collectInterrupts(await readSnapshot(graph, buildStartConfig(job)));
  const id = Object.values(open).flat()[0]?.id;
  return id === undefined ? command : { ...command, resume: { [id]: resume } };
}

function buildOptions({ kwargs }: Job): object {
  return {
    durability: kwargs.durability,
    ...(kwargs.interrupt_before !== undefined && { interruptBefore: kwargs.interrupt_before }),
    ...(kwargs.interrupt_after !== undefined && { interruptAfter: kwargs.interrupt_after }),
  };
}

/**
 * Checks node names. This check takes place in the worker, because the process that created the run may not know the
 * nodes of the graph.
 *
 * @returns warnings to stream to the clients of the run.
 * @throws GRAPH_NODE_UNKNOWN
 */
function checkNodes({ kwargs, graphId }: Job, loaded: LoadedGraph, graph: CompiledGraph): readonly string[] {
  const { interrupt_before, interrupt_after, command } = kwargs;
  if (interrupt_before === undefined && interrupt_after === undefined && command === undefined) return [];
  const nodes = loaded.nodes ?? readNodes(graph);
  if (nodes === undefined) return [];
  requireNodes(graphId, nodes, command);
  return listUnknownBreakpoints(graphId, nodes, kwargs);
}

/**
 * Whether an earlier attempt has already used the resume value. That attempt may have reached the next interrupt,
 * inside a subgraph or inside one node, without a new checkpoint on the thread. LangGraph would then use the same value
 * to answer the next interrupt. If there are several values, keyed by interrupt id, they are always passed again: some
 * may be unused, and the ids prevent a wrong match.
 */
async function isResumeConsumed({ attempt, start, kwargs, threadId }: Job, saver: ThreadSaver): Promise<boolean> {
  const resume = kwargs.command?.resume ?? undefined;
  if (attempt === 1 || start.kind === 'continue' || resume === undefined) return false;
  if (listAnsweredInterrupts(resume).length > 1) return false;
  return saver.hideConsumedResume(threadId);
}

/** Returns the requested checkpoint; undefined if the attempt starts from the head of the thread or without state. */
function chooseStartCheckpoint(start: Job['start']): CheckpointReference | undefined {
  return start.kind === 'input' && start.checkpoint !== 'none' ? start.checkpoint : undefined;
}

/**
 * Returns a config with the thread and, if a checkpoint was requested, the checkpoint from which the attempt starts.
 */
function buildStartConfig({ start, threadId }: Job) {
  const { checkpoint_id } = chooseStartCheckpoint(start) ?? {};
  return { configurable: { thread_id: threadId, ...(checkpoint_id !== undefined && { checkpoint_id }) } };
}

/**
 * Checks that the requested checkpoint exists. If it does not exist, LangGraph would silently start from an empty
 * state.
 *
 * @throws CHECKPOINT_NOT_FOUND
 */
async function requireCheckpoint({ start, threadId }: Job, saver: ThreadSaver): Promise<void> {
  const from = chooseStartCheckpoint(start);
  if (from?.checkpoint_id === undefined) return;
  const { checkpoint_id, checkpoint_ns = '' } = from;
  const found = await saver.getTuple({ configurable: { thread_id: threadId, checkpoint_ns, checkpoint_id } });
  if (found !== undefined) return;
  throw runlakeError('CHECKPOINT_NOT_FOUND', { thread: threadId, checkpoint: checkpoint_id });
}

/**
 * Executes `goto: '__end__'`: applies `update`, if there is one, and then ends the graph on the thread, so that no
 * further node is scheduled. LangGraph ignores this `goto` in the command of a run. Calls without `update` can be
 * repeated safely.
 *
 * @param config Config of the run. If it names no checkpoint, the graph continues from the head of the thread.
 * @throws errors of the graph and its saver.
 */
async function goToEnd(graph: CompiledGraph, config: object, update: RunCommand['update']): Promise<void> {
  const end = { updates: [{ values: null, asNode: '__end__' }] };
  const updates = update === undefined || update === null ? [] : [{ updates: [{ values: update }] }];
  await graph.bulkUpdateState(config, [...updates, end]);
}
