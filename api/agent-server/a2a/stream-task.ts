import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import type { Agents } from '../agent-services.ts';
import type { A2aMessage, StreamedResult } from './a2a-task.ts';
import { readTextMessage, type TaskIds, taskOfRun } from './task-of-run.ts';

/**
 * Streams a task: its submission, model output while it runs, its artifact, and its final state. If `signal` is
 * aborted, the stream ends with the current state; the run continues.
 */
export async function* streamTask(
  agents: Agents,
  { reader, ...ids }: TaskIds & { readonly reader: StreamReader },
  signal: AbortSignal,
): AsyncGenerator<StreamedResult> {
  const { runId: taskId, threadId: contextId } = ids;
  const task = { taskId, contextId };
  const close = () => reader.close();
  signal.addEventListener('abort', close);
  if (signal.aborted) close();
  try {
    const submitted = { state: 'submitted', timestamp: new Date().toISOString() } as const;
    yield { kind: 'task', id: taskId, contextId, status: submitted, history: [], artifacts: [] };
    for await (const event of reader) {
      const message = event.event === 'messages' ? modelMessage(event, task) : undefined;
      if (event.event !== 'metadata' && message === undefined) continue;
      const timestamp = new Date().toISOString();
      const status = { state: 'working', timestamp, ...(message && { message }) } as const;
      yield { kind: 'status-update', ...task, status, final: false };
    }
  } catch (error) {
    // The stream carries only intermediate output. The final state is read from the database.
    if (!isRunlakeError(error) || error.class !== 'transient') throw error;
  } finally {
    signal.removeEventListener('abort', close);
    close();
  }
  await awaitRunEnd(agents, { deploymentId: agents.deploymentId, ...ids }, { signal });
  const { artifacts, status } = await taskOfRun(agents, ids);
  for (const artifact of artifacts)
    yield { kind: 'artifact-update', ...task, artifact, append: false, lastChunk: true };
  yield { kind: 'status-update', ...task, status, final: true };
}

/** Converts model output to a chunk of the message with its id. */
function modelMessage({ data }: StreamedEvent, task: { taskId: string; contextId: string }): A2aMessage | undefined {
  const [message] = JSON.parse(Buffer.from(data).toString('utf8')) as unknown[];
  const textMessage = readTextMessage(message);
  if (textMessage?.role !== 'agent') return undefined;
  const { role, text, id } = textMessage;
  return { kind: 'message', role, parts: [{ kind: 'text', text }], messageId: id ?? `${task.taskId}-said`, ...task };
}
