import { Type } from 'typebox';
import { isRunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { findReplayPosition, toProtocolMessage } from '../../../pipelines/agents/protocol/protocol-event.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { listRuns, readRun } from '../../../pipelines/agents/runs/read-run.ts';
import { requestRun } from '../../../pipelines/agents/runs/request-run.ts';
import { multitaskStrategies } from '../../../pipelines/agents/runs/run.ts';
import type { RunRequest } from '../../../pipelines/agents/runs/run-request.ts';
import { interruptEvent, protocolMode, type StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import {
  type InterruptedThread,
  readInterruptedThread,
  readThreadHead,
  type ThreadHead,
  type ThreadState,
} from '../../../pipelines/agents/threads/thread.ts';
import { readThreadHistory, readThreadState } from '../../../pipelines/agents/threads/thread-state.ts';
import { maxStateValues, parseAnswer } from '../../../pipelines/agents/workers/front/parse-answer.ts';
import { JsonObject, OneOf, optional, Uuid } from '../../server/formats.ts';
import type { Agents } from '../agent-operation.ts';
import { ClosedObject, GraphConfigBody, JsonValue, Limit } from '../agent-schema.ts';
import { LangsmithTracer, toRunRequest } from '../runs/run-schema.ts';
import { type CommandContext, CommandRejectedError, createParamsReader } from './command.ts';

const MultitaskStrategy = () => optional(OneOf(multitaskStrategies));
const readStartParams = createParamsReader(
  ClosedObject({
    assistant_id: Type.String({ minLength: 1, maxLength: 1_000 }),
    input: Type.Optional(JsonValue()),
    config: optional(GraphConfigBody),
    context: Type.Optional(JsonValue()),
    metadata: optional(JsonObject()),
    multitaskStrategy: MultitaskStrategy(),
    multitask_strategy: MultitaskStrategy(),
    langsmith_tracer: LangsmithTracer,
  }),
);

/**
 * `run.start`: starts a run. Creates the thread if it does not exist. If the thread has an open interrupt, the input
 * resumes it, because the Python library sends `Command(resume=...)` as the input. Source: `@langchain/langgraph-api`
 * 1.5.1, protocol/service.mts.
 */
export async function startRun(context: CommandContext, params: unknown): Promise<object> {
  const {
    multitaskStrategy,
    multitask_strategy = multitaskStrategy,
    input = null,
    ...startParams
  } = readStartParams(params);
  const isAnswer = input !== null && (await hasOpenInterrupt(context, startParams.config?.configurable));
  const runInput = isAnswer ? { command: { resume: input } } : { input };
  return {
    run_id: await createRunOnThread(context, {
      ...startParams,
      ...runInput,
      multitask_strategy,
      if_not_exists: 'create',
    }),
  };
}

/** Returns true if the checkpoint from which a new run starts has an open interrupt. @throws CHECKPOINT_NOT_FOUND */
async function hasOpenInterrupt(
  context: CommandContext,
  { checkpoint_id }: Readonly<Record<string, unknown>> = {},
): Promise<boolean> {
  const { agents, threadId } = context;
  try {
    if (typeof checkpoint_id === 'string') {
      const checkpoint = { checkpoint_id };
      const stateText = await readThreadState(agents, threadId, {
        checkpoint,
        subgraphs: false,
        select: ['interrupts'],
      });
      return parseAnswer<Pick<ThreadState, 'interrupts'>>(stateText).interrupts.length > 0;
    }
    const thread = await readInterruptedThread(agents.database, agents.deploymentId, threadId);
    if (thread.status !== 'busy') return thread.interruptIds.length > 0;
  } catch (error) {
    if (isRunlakeError(error) && error.code === 'THREAD_NOT_FOUND') return false;
    throw error;
  }
  // A client can respond as soon as it receives the interrupt, even if the run that raised it has not ended yet.
  const runId = await findRunningRun(agents, threadId);
  if (runId !== undefined && !(await hasStreamedInterrupt(context, runId))) return false;
  // If no run was found, the run has not started yet, or it has ended since the thread was read.
  const thread = await awaitRun(context, runId);
  return (runId !== undefined && thread.status === 'busy') || thread.interruptIds.length > 0;
}

async function hasStreamedInterrupt({ agents, threadId }: CommandContext, runId: string): Promise<boolean> {
  const { deploymentId, hub } = agents;
  const reader = await hub.readRun({ deploymentId, threadId, runId }, 'start');
  try {
    const finished = reader.finish();
    for await (const { mode, event } of reader) if (mode === protocolMode && event === interruptEvent) return true;
    await finished;
    return false;
  } finally {
    reader.close();
  }
}

const InterruptResponse = ClosedObject({
  interrupt_id: Type.String({ minLength: 1, maxLength: 1_000 }),
  response: Type.Optional(JsonValue()),
  namespace: optional(Type.Array(Type.String()), {
    description: 'Namespace of the interrupt; optional, because the id is sufficient.',
  }),
});
const commonFields = {
  update: Type.Optional(JsonValue()),
  goto: Type.Optional(JsonValue()),
  config: optional(GraphConfigBody),
  metadata: optional(JsonObject()),
  strict_resume: optional(Type.Boolean(), {
    description: 'Has no effect: a response to an unknown interrupt is always refused.',
  }),
};
const readResponses = createParamsReader(
  ClosedObject({ responses: Type.Array(InterruptResponse, { minItems: 1, maxItems: 1_000 }), ...commonFields }),
);
const readSingleResponse = createParamsReader(ClosedObject({ ...InterruptResponse.properties, ...commonFields }));

/** `input.respond`: starts a single run that resumes all interrupts in `params`. */
export async function respondToInput(context: CommandContext, params: unknown): Promise<object> {
  const hasResponseList = typeof params === 'object' && params !== null && 'responses' in params;
  const responseParams = hasResponseList ? readResponses(params) : toResponses(readSingleResponse(params));
  const { agents, threadId } = context;
  let thread = await readInterruptedThread(agents.database, agents.deploymentId, threadId);
  // A client can respond as soon as it receives the interrupt, even if the run that raised it has not ended yet.
  if (thread.status === 'busy') thread = await awaitRun(context, await findRunningRun(agents, threadId));
  const open = new Set(thread.interruptIds);
  for (const { interrupt_id: id } of responseParams.responses) {
    if (open.has(id)) continue;
    throw new CommandRejectedError('no_such_interrupt', `Thread '${threadId}' has no open interrupt '${id}'.`);
  }
  const resume = Object.fromEntries(
    responseParams.responses.map(({ interrupt_id, response = null }) => [interrupt_id, response]),
  );
  await createRunOnThread(context, {
    assistant_id: resolveThreadAssistant(context, thread),
    command: { resume, update: responseParams.update, goto: responseParams.goto },
    config: responseParams.config,
    metadata: responseParams.metadata,
    // If a concurrent response has already started a run, this response is rejected.
    multitask_strategy: 'reject',
  });
  return {};
}

/**
 * Maximum time to wait for the end of an interrupted run before a response to its interrupt is applied. A run stores
 * its state before it ends.
 */
const runEndTimeoutMs = 5_000;

/** Waits until the run, if any, has ended or the timeout expires. Returns the thread. */
async function awaitRun(
  { agents, threadId, request }: CommandContext,
  runId: string | undefined,
): Promise<InterruptedThread> {
  const { database, deploymentId } = agents;
  if (runId !== undefined) {
    const { drainStarted } = request.server;
    const signal = AbortSignal.any([AbortSignal.timeout(runEndTimeoutMs), drainStarted]);
    await awaitRunEnd(agents, { deploymentId, threadId, runId }, { signal });
  }
  return readInterruptedThread(database, deploymentId, threadId);
}

async function findRunningRun({ database, deploymentId }: Agents, threadId: string): Promise<string | undefined> {
  const page = { limit: 1, offset: 0, status: 'running', select: ['run_id'] } as const;
  const [run] = await listRuns(database, deploymentId, threadId, page);
  return run?.run_id;
}

function toResponses({
  interrupt_id,
  response,
  ...rest
}: ReturnType<typeof readSingleResponse>): ReturnType<typeof readResponses> {
  return { ...rest, responses: [{ interrupt_id, response }] };
}

/**
 * Returns the assistant that continues a thread. It is read from the metadata of the thread. Under custom
 * authentication, the authorised assistant is returned instead, because the metadata may have changed since the
 * authorisation.
 *
 * @throws THREAD_WITHOUT_GRAPH
 */
function resolveThreadAssistant({ request, access = request.agentAccess }: CommandContext, thread: ThreadHead): string {
  const { graph_id, assistant_id: named = graph_id } = thread.metadata;
  const assistant_id = access === undefined ? named : access.assistantId;
  if (typeof assistant_id !== 'string') throw runlakeError('THREAD_WITHOUT_GRAPH', { thread: thread.thread_id });
  return assistant_id;
}

async function createRunOnThread({ agents, threadId, ...context }: CommandContext, body: RunRequest): Promise<string> {
  const request = { ...body, stream_mode: [protocolMode], stream_resumable: true };
  const runRequest = toRunRequest({ ...context, body: request, params: { thread_id: threadId } });
  const { run } = await requestRun(agents, runRequest);
  return run.run_id;
}

const readForkParams = createParamsReader(
  ClosedObject({
    checkpoint_id: Type.String({ minLength: 1, maxLength: 1_000 }),
    input: Type.Optional(JsonValue()),
    config: optional(GraphConfigBody),
    metadata: optional(JsonObject()),
  }),
);

/**
 * `state.fork`: starts a run that continues from a checkpoint of this thread. Without input, the graph continues from
 * the point where it stopped at the checkpoint. Source: `@langchain/protocol` 0.0.13, StateForkParams.
 */
export async function forkState(context: CommandContext, params: unknown): Promise<object> {
  const { checkpoint_id, input = null, config, metadata } = readForkParams(params);
  const { database, deploymentId } = context.agents;
  const assistant_id = resolveThreadAssistant(context, await readThreadHead(database, deploymentId, context.threadId));
  const run_id = await createRunOnThread(context, { assistant_id, input, checkpoint_id, config, metadata });
  return { run_id, thread_id: context.threadId };
}

const readStateParams = createParamsReader(
  ClosedObject({
    namespace: optional(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 })),
    keys: optional(Type.Array(Type.String(), { maxItems: 1_000 })),
  }),
);

/** `state.get`: returns the state of the thread or of a subgraph. */
export async function getState({ agents, threadId }: CommandContext, params: unknown): Promise<object> {
  const { namespace, keys } = readStateParams(params);
  const checkpoint = namespace?.length ? { checkpoint_ns: namespace.join('|') } : undefined;
  const stateText = await readThreadState(agents, threadId, { subgraphs: false, ...(checkpoint && { checkpoint }) });
  const state = parseAnswer<ThreadState>(stateText, maxStateValues);
  const values = (state.values ?? {}) as Readonly<Record<string, unknown>>;
  const { checkpoint_id: id, checkpoint_ns: ns } = state.checkpoint ?? {};
  if (checkpoint && id === undefined) {
    throw new CommandRejectedError(
      'no_such_namespace',
      `The thread has no state in the namespace '${checkpoint.checkpoint_ns}'.`,
    );
  }
  return {
    values: keys ? Object.fromEntries(Object.entries(values).filter(([key]) => keys.includes(key))) : values,
    ...(id !== undefined && { checkpoint: { id, ...(ns && { ns }) } }),
  };
}

interface TreeNode {
  readonly namespace: readonly string[];
  status: string;
  graph_name: string;
  readonly children: TreeNode[];
}

interface LifecycleEvent {
  readonly params: {
    readonly namespace: readonly string[];
    readonly data: { readonly event: string; readonly graph_name: string };
  };
}

const readTreeParams = createParamsReader(ClosedObject({ run_id: optional(Uuid()) }));

/**
 * `agent.getTree`: returns the graph and its subgraphs with their status. The status is derived from the events of the
 * given run. Without a run, it is derived from the active runs or, if there are none, from the last run.
 */
export async function getTree({ agents, threadId }: CommandContext, params: unknown): Promise<object> {
  const { run_id: runId } = readTreeParams(params);
  await readThreadHead(agents.database, agents.deploymentId, threadId);
  const reader = await openReader(agents, threadId, runId?.toLowerCase());
  const root: TreeNode = { namespace: [], status: 'started', graph_name: 'root', children: [] };
  const nodes = new Map([['', root]]);
  try {
    const finished = reader.finish();
    for await (const event of reader) {
      const message = toProtocolMessage(event, [{ channels: ['lifecycle'] }]);
      if (message?.method !== 'lifecycle') continue;
      const { namespace, data } = (JSON.parse(message.text) as LifecycleEvent).params;
      const node = findOrAddNode(nodes, namespace);
      node.status = data.event;
      node.graph_name = data.graph_name;
    }
    await finished;
  } finally {
    reader.close();
  }
  return { tree: root };
}

async function openReader(
  { database, deploymentId, hub }: CommandContext['agents'],
  threadId: string,
  runId: string | undefined,
): Promise<StreamReader> {
  if (runId === undefined) {
    return hub.readThread({ deploymentId, threadId }, await findReplayPosition(database, deploymentId, threadId));
  }
  await readRun(database, deploymentId, { threadId, runId });
  return hub.readRun({ deploymentId, threadId, runId }, 'start');
}

function findOrAddNode(nodes: Map<string, TreeNode>, namespace: readonly string[]): TreeNode {
  const found = nodes.get(namespace.join('|'));
  if (found !== undefined) return found;
  const created: TreeNode = { namespace, status: 'started', graph_name: namespace.at(-1) ?? 'root', children: [] };
  nodes.set(namespace.join('|'), created);
  findOrAddNode(nodes, namespace.slice(0, -1)).children.push(created);
  return created;
}

const readListParams = createParamsReader(
  ClosedObject({
    namespace: optional(Type.Array(Type.String({ maxLength: 1_000 }), { maxItems: 100 })),
    limit: Limit(),
    before: optional(Type.String({ minLength: 1, maxLength: 1_000 })),
  }),
);

const defaultPageSize = 10;

/**
 * `state.listCheckpoints`: returns the checkpoints of the thread or of a subgraph, newest first. `before` is the id of
 * the last checkpoint of the previous page. Source: `@langchain/protocol` 0.0.13, ListCheckpointsResult.
 */
export async function listCheckpoints({ agents, threadId }: CommandContext, params: unknown): Promise<object> {
  const { namespace, limit, before } = readListParams(params);
  const history = await readThreadHistory(agents, threadId, {
    limit: limit ?? defaultPageSize,
    select: ['checkpoint', 'created_at', 'metadata'],
    ...(before && { before: { checkpoint_id: before } }),
    ...(namespace?.length && { checkpoint: { checkpoint_ns: namespace.join('|') } }),
  });
  const checkpoints = parseAnswer<ThreadState[]>(history, maxStateValues).map(
    ({ checkpoint, created_at, metadata }) => ({
      id: checkpoint?.checkpoint_id,
      timestamp: created_at,
      step: metadata.step,
      metadata,
    }),
  );
  return { checkpoints };
}
