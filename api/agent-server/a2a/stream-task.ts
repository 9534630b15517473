import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import type { StreamedEvent, StreamReader } from '../../../pipelines/agents/streams/stream-ports.ts';
import type { Agents } from '../agent-services.ts';
import type { A2aMessage, StreamedResult } from './a2a-task.ts';
import { saidIn, type TaskIds, taskOfRun } from './task-of-run.ts';

/**
 * A task as it comes: submitted, what its models say while it works, its artifact, and its state at the end. Where `signal` is aborted
 * it ends with the state that it has then; the run goes on.
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
      const message = event.event === 'messages' ? spoken(event, task) : undefined;
      if (event.event !== 'metadata' && message === undefined) continue;
      const timestamp = new Date().toISOString();
      const status = { state: 'working', timestamp, ...(message && { message }) } as const;
      yield { kind: 'status-update', ...task, status, final: false };
    }
  } catch (error) {
    // It is only what was said on the way: the end is in the rows.
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

/** What a model said: a piece of the message with that id. */
function spoken({ data }: StreamedEvent, task: { taskId: string; contextId: string }): A2aMessage | undefined {
  const [message] = JSON.parse(Buffer.from(data).toString('utf8')) as unknown[];
  const said = saidIn(message);
  if (said?.role !== 'agent') return undefined;
  const { role, text, id } = said;
  return { kind: 'message', role, parts: [{ kind: 'text', text }], messageId: id ?? `${task.taskId}-said`, ...task };
}
