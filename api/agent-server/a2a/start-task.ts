import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
import { uuidv7 } from '../../../infra/ids/uuid-v7.ts';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { findThreadOfRun } from '../../../pipelines/agents/runs/find-thread-of-run.ts';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-ports.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { asOperation } from '../access/as-operation.ts';
import type { AgentServices } from '../agent-services.ts';
import { runRequestOf } from '../runs/run-request-of.ts';
import { A2aError } from './a2a-error.ts';
import type { SendParams } from './a2a-params.ts';
import type { Task } from './a2a-task.ts';
import { contentOf, inputOf, isObject, resumeOf } from './message-content.ts';
import { type TaskIds, taskOfRun } from './task-of-run.ts';

export interface A2aInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

/**
 * Makes the run that answers a message: on the thread `contextId`, which is made where it is not there; with `taskId` as the answer to
 * what that run waits for.
 *
 * @throws A2aError, and what making a run throws.
 */
export async function startTask(
  input: A2aInput,
  assistant: Assistant,
  { message, thread, configuration }: Static<typeof SendParams>,
): Promise<TaskIds & { readonly reader: StreamReader }> {
  const { agents } = input.services;
  if (configuration?.pushNotificationConfig) {
    throw new A2aError('pushNotSupported', 'Push notifications are not supported.');
  }
  const content = contentOf(message.parts);
  const context = (message.contextId ?? thread?.threadId)?.toLowerCase();
  const resumed = message.taskId && (await waitingTask(input, assistant, message.taskId.toLowerCase(), context));
  if (!resumed && content.text !== undefined) await requireMessages(input, assistant);
  const body = {
    assistant_id: assistant.assistant_id,
    if_not_exists: 'create' as const,
    stream_mode: ['messages-tuple'],
    ...(resumed ? { command: { resume: resumeOf(content) } } : { input: inputOf(content, message) }),
  };
  const params = { thread_id: resumed ? resumed.threadId : (context ?? uuidv7()) };
  const { run, reader } = await asOperation(input.request, 'waitForRun', { params, body }, (part) =>
    requestFollowedRun(agents, runRequestOf({ ...input, ...part })),
  );
  return { threadId: run.thread_id, runId: run.run_id, reader };
}

/** @throws A2aError where the task is not this assistant's, or waits for nothing; RUN_NOT_FOUND */
async function waitingTask(
  input: A2aInput,
  assistant: Assistant,
  runId: string,
  context: string | undefined,
): Promise<TaskIds> {
  const { status, contextId: threadId } = await readTask(input, assistant, { runId, context });
  if (status.state === 'input-required') return { threadId, runId };
  throw new A2aError('invalidParams', `Task ${runId} is ${status.state} and waits for no message: leave out taskId.`);
}

const uuid = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/;

/** A task of an assistant, in `context` or wherever it is. @throws RUN_NOT_FOUND */
export async function readTask(
  { services: { agents }, request }: A2aInput,
  { assistant_id: assistantId }: Assistant,
  { runId, context, historyLength }: { runId: string; context: string | undefined; historyLength?: number },
): Promise<Task> {
  if (![runId, context ?? runId].every((id) => uuid.test(id))) throw fault('RUN_NOT_FOUND', { run: runId });
  const threadId = context ?? (await findThreadOfRun(agents.database, agents.deploymentId, runId));
  const options = { assistantId, ...(historyLength !== undefined && { historyLength }) };
  const params = { thread_id: threadId, run_id: runId };
  return asOperation(request, 'getAgentRun', { params }, () => taskOfRun(agents, { threadId, runId }, options));
}

/** Text goes into `messages`: a graph that says what it takes has to take them. @throws A2aError */
async function requireMessages({ services: { agents } }: A2aInput, assistant: Assistant): Promise<void> {
  const { graph_id: graphId, config } = assistant;
  const { input_schema: schema } = await describeGraph(agents, graphId, config);
  if (!isObject(schema) || !isObject(schema.properties) || 'messages' in schema.properties) return;
  throw new A2aError('invalidParams', 'The assistant takes no `messages`, so no text parts: send data parts.');
}
