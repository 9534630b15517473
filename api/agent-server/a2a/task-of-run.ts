import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { readRun } from '../../../pipelines/agents/runs/read-run.ts';
import { readRunEnd } from '../../../pipelines/agents/runs/read-run-end.ts';
import type { Run } from '../../../pipelines/agents/runs/run.ts';
import { readThreadHistory } from '../../../pipelines/agents/threads/read-thread-history.ts';
import type { ThreadState } from '../../../pipelines/agents/threads/thread.ts';
import type { Agents } from '../agent-services.ts';
import type { A2aMessage, Artifact, Part, Task, TaskStatus } from './a2a-task.ts';
import { isObject } from './message-content.ts';

export interface TaskIds {
  readonly threadId: string;
  readonly runId: string;
}

const states = {
  pending: 'submitted',
  running: 'working',
  success: 'completed',
  error: 'failed',
  timeout: 'failed',
  interrupted: 'canceled',
} as const satisfies Record<Run['status'], TaskStatus['state']>;

/**
 * Reads a run with its last state as a task.
 * @throws RUN_NOT_FOUND, also if the run belongs to another assistant than `assistantId`; and the errors of graph code.
 */
export async function taskOfRun(
  agents: Agents,
  ids: TaskIds,
  { historyLength = 10, assistantId }: { readonly historyLength?: number; readonly assistantId?: string } = {},
): Promise<Task> {
  const { database, deploymentId } = agents;
  const run = await readRun(database, deploymentId, ids);
  if (assistantId !== undefined && run.assistant_id !== assistantId)
    throw runlakeError('RUN_NOT_FOUND', { run: ids.runId });
  const ended = run.status !== 'pending' && run.status !== 'running';
  const lastState = ended ? await readRunState(agents, ids) : undefined;
  const waits = run.status === 'success' && lastState?.isHead === true && lastState.state.next.length > 0;
  const task = { taskId: run.run_id, contextId: run.thread_id };
  const says = (parts: readonly Part[]): A2aMessage => ({
    ...{ kind: 'message', role: 'agent', parts, messageId: `${run.run_id}-status` },
    ...task,
  });
  const message = waits ? says(interruptParts(lastState.state)) : await readFailure();
  return {
    kind: 'task',
    id: run.run_id,
    contextId: run.thread_id,
    status: {
      state: waits ? 'input-required' : states[run.status],
      timestamp: run.updated_at,
      ...(message && { message }),
    },
    history: historyLength === 0 ? [] : readMessages(lastState?.state.values, task).slice(-historyLength),
    artifacts:
      run.status === 'success' && !waits && lastState ? [buildArtifact(run.run_id, lastState.state.values)] : [],
  };

  async function readFailure(): Promise<A2aMessage | undefined> {
    if (states[run.status] !== 'failed') return undefined;
    const error = (await readRunEnd(database, deploymentId, ids))?.error;
    return error ? says([{ kind: 'text', text: `${error.error}: ${error.message}` }]) : undefined;
  }
}

/** Returns the last state that a run has stored. `isHead`: no other run has continued from it. */
async function readRunState(agents: Agents, { threadId, runId }: TaskIds) {
  const newest = async (metadata?: object): Promise<ThreadState | undefined> =>
    JSON.parse(
      await readThreadHistory(agents, threadId, { limit: 1, ...(metadata && { metadata: { ...metadata } }) }),
    )[0];
  const head = await newest();
  if (head?.metadata.run_id === runId) return { state: head, isHead: true };
  const state = await newest({ run_id: runId });
  return state && { state, isHead: false };
}

function interruptParts({ interrupts }: ThreadState): Part[] {
  return [{ kind: 'data', data: { interrupts: interrupts.map(({ id, value }) => ({ id, value })) } }];
}

/** Builds the artifact: the text of the last model message or, without messages, the state. */
function buildArtifact(runId: string, values: unknown): Artifact {
  const last = readMessages(values, {}).findLast(({ role }) => role === 'agent');
  const parts: readonly Part[] = last?.parts ?? [{ kind: 'data', data: isObject(values) ? values : { values } }];
  return {
    artifactId: `${runId}-response`,
    name: 'Assistant Response',
    description: 'Response of the assistant',
    parts,
  };
}

/** Returns the messages of users and models; omits tool messages and empty texts. */
function readMessages(values: unknown, task: { readonly taskId?: string; readonly contextId?: string }): A2aMessage[] {
  const messages: readonly unknown[] = isObject(values) && Array.isArray(values.messages) ? values.messages : [];
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

const roles: Readonly<Record<string, A2aMessage['role']>> = {
  human: 'user',
  HumanMessageChunk: 'user',
  ai: 'agent',
  AIMessageChunk: 'agent',
};

/** Returns the text of a message of the graph; undefined if it is neither from a user nor a model, or has no text. */
export function readTextMessage(message: unknown): { role: A2aMessage['role']; text: string; id?: string } | undefined {
  if (!isObject(message)) return undefined;
  const { type, content, id } = message;
  const role = roles[String(type)];
  const blocks: readonly unknown[] = Array.isArray(content) ? content : [{ type: 'text', text: content }];
  const text = blocks
    .map((block) => (isObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : ''))
    .join('');
  if (role === undefined || text === '') return undefined;
  return { role, text, ...(typeof id === 'string' && { id }) };
}
