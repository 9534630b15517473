import type { Static } from 'typebox';
import { v7 as uuidv7 } from 'uuid';
import { isTransient, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { isJsonObject } from '../../../infra/json/json-value.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import { isNewestStateOfRun, readRunEnd } from '../../../pipelines/agents/runs/published-ends.ts';
import { findThreadOfRun, readRun } from '../../../pipelines/agents/runs/read-run.ts';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import type { Run } from '../../../pipelines/agents/runs/run.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import type { ThreadState } from '../../../pipelines/agents/threads/thread.ts';
import { readThreadHistory } from '../../../pipelines/agents/threads/thread-state.ts';
import { maxStateValues, parseAnswer } from '../../../pipelines/agents/workers/front/parse-answer.ts';
import { parseUuid } from '../../../pipelines/ingest/run-event/uuid.ts';
import { executeRequestPart } from '../access/agent-access.ts';
import type { AgentInput, Agents } from '../agent-operation.ts';
import { cancelAgentRun } from '../runs/cancel.ts';
import { waitForRun } from '../runs/create.ts';
import { getAgentRun } from '../runs/read.ts';
import { toRunRequest } from '../runs/run-schema.ts';
import { A2aError, buildInput, buildResumeValue, readMessageContent, type SendParams } from './a2a-params.ts';

/** Types of A2A 0.3.0 that occur in responses. The names are those used on the wire. Source: A2A 0.3.0, 6. */

export type MessagePart =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'data'; readonly data: Readonly<Record<string, unknown>> };

export interface A2aMessage {
  readonly kind: 'message';
  readonly role: 'user' | 'agent';
  readonly parts: readonly MessagePart[];
  readonly messageId: string;
  readonly taskId?: string;
  readonly contextId?: string;
}

export interface TaskStatus {
  readonly state: 'submitted' | 'working' | 'input-required' | 'completed' | 'failed' | 'canceled';
  readonly timestamp: string;
  readonly message?: A2aMessage;
}

export interface Artifact {
  readonly artifactId: string;
  readonly name: string;
  readonly description: string;
  readonly parts: readonly MessagePart[];
}

export interface Task {
  readonly kind: 'task';
  readonly id: string;
  readonly contextId: string;
  readonly status: TaskStatus;
  readonly history: readonly A2aMessage[];
  readonly artifacts: readonly Artifact[];
}

export type StreamedResult =
  | Task
  | {
      readonly kind: 'status-update';
      readonly taskId: string;
      readonly contextId: string;
      readonly status: TaskStatus;
      readonly final: boolean;
    }
  | {
      readonly kind: 'artifact-update';
      readonly taskId: string;
      readonly contextId: string;
      readonly artifact: Artifact;
      readonly append: boolean;
      readonly lastChunk: boolean;
    };

interface TaskIds {
  readonly threadId: string;
  readonly runId: string;
}

const taskStateByRunStatus = {
  pending: 'submitted',
  running: 'working',
  success: 'completed',
  error: 'failed',
  timeout: 'failed',
  interrupted: 'canceled',
} as const satisfies Record<Run['status'], TaskStatus['state']>;

/**
 * Reads a run and its last state, and converts them to a task.
 *
 * @throws RUN_NOT_FOUND if the run does not exist or its assistant is not `assistantId`; the errors of graph code.
 */
export async function readRunTask(
  agents: Agents,
  ids: TaskIds,
  { historyLength = 10, assistantId }: { readonly historyLength?: number; readonly assistantId?: string } = {},
): Promise<Task> {
  const { database, deploymentId } = agents;
  const run = await readRun(database, deploymentId, ids);
  if (assistantId !== undefined && run.assistant_id !== assistantId)
    throw runlakeError('RUN_NOT_FOUND', { run: ids.runId });
  const hasEnded = run.status !== 'pending' && run.status !== 'running';
  const leftNewestState = run.status === 'success' && (await isNewestStateOfRun(database, deploymentId, ids));
  const lastState = hasEnded ? await readRunState(agents, ids, leftNewestState) : undefined;
  const needsInput = leftNewestState && lastState !== undefined && lastState.next.length > 0;
  const task = { taskId: run.run_id, contextId: run.thread_id };
  const buildAgentMessage = (parts: readonly MessagePart[]): A2aMessage => ({
    ...{ kind: 'message', role: 'agent', parts, messageId: `${run.run_id}-status` },
    ...task,
  });
  const message = needsInput ? buildAgentMessage(toInterruptParts(lastState)) : await readFailureMessage();
  return {
    kind: 'task',
    id: run.run_id,
    contextId: run.thread_id,
    status: {
      state: needsInput ? 'input-required' : taskStateByRunStatus[run.status],
      timestamp: run.updated_at,
      ...(message && { message }),
    },
    history: historyLength === 0 ? [] : readMessages(lastState?.values, task).slice(-historyLength),
    artifacts:
      run.status === 'success' && !needsInput && lastState ? [buildArtifact(run.run_id, lastState.values)] : [],
  };

  async function readFailureMessage(): Promise<A2aMessage | undefined> {
    if (taskStateByRunStatus[run.status] !== 'failed') return undefined;
    const error = (await readRunEnd(database, deploymentId, ids))?.error;
    return error ? buildAgentMessage([{ kind: 'text', text: `${error.error}: ${error.message}` }]) : undefined;
  }
}

/** Returns the state that a run left: the newest of the thread, or the last one that the run stored. */
async function readRunState(
  agents: Agents,
  { threadId, runId }: TaskIds,
  leftNewestState: boolean,
): Promise<ThreadState | undefined> {
  const readNewestState = async (metadata?: object): Promise<ThreadState | undefined> =>
    parseAnswer<ThreadState[]>(
      await readThreadHistory(agents, threadId, { limit: 1, ...(metadata && { metadata: { ...metadata } }) }),
      maxStateValues,
    )[0];
  const newestState = await readNewestState();
  if (leftNewestState || newestState?.metadata.run_id === runId) return newestState;
  return readNewestState({ run_id: runId });
}

function toInterruptParts({ interrupts }: ThreadState): MessagePart[] {
  return [{ kind: 'data', data: { interrupts: interrupts.map(({ id, value }) => ({ id, value })) } }];
}

/** Builds the artifact. It contains the text of the last model message or, if there is none, the state. */
function buildArtifact(runId: string, values: unknown): Artifact {
  const lastAgentMessage = readMessages(values, {}).findLast(({ role }) => role === 'agent');
  const parts: readonly MessagePart[] = lastAgentMessage?.parts ?? [
    { kind: 'data', data: isJsonObject(values) ? values : { values } },
  ];
  return {
    artifactId: `${runId}-response`,
    name: 'Assistant Response',
    description: 'Response of the assistant',
    parts,
  };
}

/** Returns the messages of users and models. Omits tool messages and messages without text. */
function readMessages(values: unknown, task: { readonly taskId?: string; readonly contextId?: string }): A2aMessage[] {
  const messages: readonly unknown[] = isJsonObject(values) && Array.isArray(values.messages) ? values.messages : [];
  return messages.flatMap((message, index): A2aMessage[] => {
    const textMessage = readTextMessage(message);
    if (textMessage === undefined) return [];
    return [
      {
        ...{ kind: 'message', role: textMessage.role, parts: [{ kind: 'text', text: textMessage.text }] },
        messageId: textMessage.id ?? String(index),
        ...task,
      },
    ];
  });
}

const roleByMessageType: ReadonlyMap<unknown, A2aMessage['role']> = new Map([
  ['human', 'user'],
  ['HumanMessageChunk', 'user'],
  ['ai', 'agent'],
  ['AIMessageChunk', 'agent'],
]);

/**
 * Converts a message of the graph to a text message. Returns undefined if the message is not from a user or a model, or
 * has no text.
 */
function readTextMessage(message: unknown): { role: A2aMessage['role']; text: string; id?: string } | undefined {
  if (!isJsonObject(message)) return undefined;
  const { type, content, id } = message;
  const role = roleByMessageType.get(type);
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [{ type: 'text', text: content }];
  const text = blocks
    .map((block) => (isJsonObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : ''))
    .join('');
  if (role === undefined || text === '') return undefined;
  return { role, text, ...(typeof id === 'string' && { id }) };
}

/**
 * Creates the run for a message on the thread `contextId`. Creates the thread if it does not exist. If `taskId` is set,
 * the message resumes the interrupt of that run.
 *
 * @throws A2aError and the errors of creating a run.
 */
export async function startTask(
  input: AgentInput,
  assistant: Assistant,
  { message, thread, configuration }: Static<typeof SendParams>,
): Promise<TaskIds & { readonly reader: StreamReader }> {
  const { agents } = input.services;
  if (configuration?.pushNotificationConfig) {
    throw new A2aError('pushNotSupported', 'Push notifications are not supported.');
  }
  const content = readMessageContent(message.parts);
  const requestedContextId = (message.contextId ?? thread?.threadId)?.toLowerCase();
  const resumedTask =
    message.taskId && (await findWaitingTask(input, assistant, message.taskId.toLowerCase(), requestedContextId));
  if (!resumedTask && content.text !== undefined) await requireMessages(input, assistant);
  const body = {
    assistant_id: assistant.assistant_id,
    if_not_exists: 'create' as const,
    stream_mode: ['messages-tuple'],
    ...(resumedTask
      ? // Reject the reply if a concurrent one has created a run: it would answer the next interrupt.
        { command: { resume: buildResumeValue(content) }, multitask_strategy: 'reject' as const }
      : { input: buildInput(content, message) }),
  };
  const params = { thread_id: resumedTask ? resumedTask.threadId : (requestedContextId ?? uuidv7()) };
  // For the same reason reject it if the run of a concurrent reply has already ended.
  const check = async (tx: Sql) => {
    if (!resumedTask || (await isNewestStateOfRun(tx, agents.deploymentId, resumedTask))) return;
    throw new A2aError('invalidParams', `Task ${resumedTask.runId} no longer needs input. Omit taskId.`);
  };
  const { run, reader } = await executeRequestPart(input.request, waitForRun, { params, body }, (part) =>
    requestFollowedRun(agents, { ...toRunRequest({ ...input, ...part }), ...(resumedTask && { check }) }),
  );
  return { threadId: run.thread_id, runId: run.run_id, reader };
}

/**
 * Returns the ids of a task that needs input.
 *
 * @throws A2aError if the task does not need input; RUN_NOT_FOUND if the task does not exist or belongs to another
 *   assistant
 */
async function findWaitingTask(
  input: AgentInput,
  assistant: Assistant,
  runId: string,
  context: string | undefined,
): Promise<TaskIds> {
  const { status, contextId: threadId } = await readTask(input, assistant, { runId, context });
  if (status.state === 'input-required') return { threadId, runId };
  throw new A2aError('invalidParams', `Task ${runId} is ${status.state} and does not need input. Omit taskId.`);
}

/** Reads a task of an assistant. If `context` is undefined, searches all threads for the task. @throws RUN_NOT_FOUND */
export async function readTask(
  { services: { agents }, request }: AgentInput,
  { assistant_id: assistantId }: Assistant,
  { runId, context, historyLength }: { runId: string; context: string | undefined; historyLength?: number },
): Promise<Task> {
  if (![runId, context ?? runId].every((id) => parseUuid(id) === id))
    throw runlakeError('RUN_NOT_FOUND', { run: runId });
  const threadId = context ?? (await findThreadOfRun(agents.database, agents.deploymentId, runId));
  const options = { assistantId, ...(historyLength !== undefined && { historyLength }) };
  const params = { thread_id: threadId, run_id: runId };
  return executeRequestPart(request, getAgentRun, { params }, () => readRunTask(agents, { threadId, runId }, options));
}

/**
 * Cancels a task. Returns it when it has ended, or when the server stops.
 *
 * @throws A2aError if the task has ended or needs input.
 */
export async function cancelTask(
  { services: { agents }, request }: AgentInput,
  { id: runId, contextId: threadId, status, history }: Task,
): Promise<Task> {
  if (status.state !== 'submitted' && status.state !== 'working')
    throw new A2aError('taskNotCancelable', `Task ${runId} is ${status.state}.`);
  const { database, deploymentId, wake } = agents;
  const run = { threadId, runId };
  const params = { thread_id: threadId, run_id: runId };
  await executeRequestPart(request, cancelAgentRun, { params }, () =>
    cancelRun(database, deploymentId, run, 'interrupt'),
  );
  wake();
  const signal = AbortSignal.any([request.signal, request.server.drainStarted]);
  await awaitRunEnd(agents, { deploymentId, ...run }, { signal });
  return readRunTask(agents, run, { historyLength: history.length });
}

/**
 * Checks that the graph accepts messages, because the text of a task is sent as a message.
 *
 * @throws A2aError if the graph has an input schema without `messages`.
 */
async function requireMessages({ services: { agents } }: AgentInput, assistant: Assistant): Promise<void> {
  const { graph_id: graphId, config } = assistant;
  const { input_schema: schema } = await describeGraph(agents, graphId, config);
  if (!isJsonObject(schema) || !isJsonObject(schema.properties) || 'messages' in schema.properties) return;
  throw new A2aError(
    'invalidParams',
    'The assistant has no `messages` in its input schema. Send data parts instead of text parts.',
  );
}

/**
 * Streams a task: its submission, model output while the task runs, its artifact, and its final state. If `signal` is
 * aborted, the stream ends with the current state; the run continues.
 */
export async function* streamTask(
  agents: Agents,
  { reader, ...ids }: TaskIds & { readonly reader: StreamReader },
  signal: AbortSignal,
): AsyncGenerator<StreamedResult> {
  const { runId: taskId, threadId: contextId } = ids;
  const task = { taskId, contextId };
  const closeReader = () => reader.close();
  signal.addEventListener('abort', closeReader);
  if (signal.aborted) closeReader();
  try {
    const submittedStatus = { state: 'submitted', timestamp: new Date().toISOString() } as const;
    yield { kind: 'task', id: taskId, contextId, status: submittedStatus, history: [], artifacts: [] };
    for await (const event of reader) {
      const message = event.event === 'messages' ? toModelMessage(event, task) : undefined;
      if (event.event !== 'metadata' && message === undefined) continue;
      const timestamp = new Date().toISOString();
      const status = { state: 'working', timestamp, ...(message && { message }) } as const;
      yield { kind: 'status-update', ...task, status, final: false };
    }
  } catch (error) {
    // If the stream fails, only intermediate output is lost, because the final state is read from the database.
    if (!isTransient(error)) throw error;
  } finally {
    signal.removeEventListener('abort', closeReader);
    closeReader();
  }
  await awaitRunEnd(agents, { deploymentId: agents.deploymentId, ...ids }, { signal });
  const { artifacts, status } = await readRunTask(agents, ids);
  for (const artifact of artifacts)
    yield { kind: 'artifact-update', ...task, artifact, append: false, lastChunk: true };
  yield { kind: 'status-update', ...task, status, final: true };
}

/** Converts a streamed model message to an A2A message with the same id. Returns undefined for any other message. */
function toModelMessage({ data }: StreamedEvent, task: { taskId: string; contextId: string }): A2aMessage | undefined {
  const [message] = JSON.parse(Buffer.from(data).toString('utf8')) as unknown[];
  const textMessage = readTextMessage(message);
  if (textMessage?.role !== 'agent') return undefined;
  const { role, text, id } = textMessage;
  return { kind: 'message', role, parts: [{ kind: 'text', text }], messageId: id ?? `${task.taskId}-said`, ...task };
}
