import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { v7 as uuidv7 } from 'uuid';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { Assistant } from '../../../pipelines/agents/assistants/assistant.ts';
import { findThreadOfRun } from '../../../pipelines/agents/runs/find-thread-of-run.ts';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import { describeGraph } from '../../../pipelines/agents/schemas/describe-graph.ts';
import type { StreamReader } from '../../../pipelines/agents/streams/stream-types.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { asOperation } from '../access/as-operation.ts';
import type { AgentServices } from '../agent-services.ts';
import { runRequestOf } from '../runs/run-request-of.ts';
import { A2aError } from './a2a-error.ts';
import type { SendParams } from './a2a-params.ts';
import type { Task } from './a2a-task.ts';
import { buildInput, buildResumeValue, isObject, readMessageContent } from './message-content.ts';
import { type TaskIds, taskOfRun } from './task-of-run.ts';

export interface A2aInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

/**
 * Creates the run for a message, on the thread `contextId`, which is created if it does not exist. With `taskId`, the
 * message resumes the interrupt of that run.
 *
 * @throws A2aError and the errors of creating a run.
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
  const content = readMessageContent(message.parts);
  const context = (message.contextId ?? thread?.threadId)?.toLowerCase();
  const resumed = message.taskId && (await waitingTask(input, assistant, message.taskId.toLowerCase(), context));
  if (!resumed && content.text !== undefined) await requireMessages(input, assistant);
  const body = {
    assistant_id: assistant.assistant_id,
    if_not_exists: 'create' as const,
    stream_mode: ['messages-tuple'],
    ...(resumed ? { command: { resume: buildResumeValue(content) } } : { input: buildInput(content, message) }),
  };
  const params = { thread_id: resumed ? resumed.threadId : (context ?? uuidv7()) };
  const { run, reader } = await asOperation(input.request, 'waitForRun', { params, body }, (part) =>
    requestFollowedRun(agents, runRequestOf({ ...input, ...part })),
  );
  return { threadId: run.thread_id, runId: run.run_id, reader };
}

/** @throws A2aError if the task belongs to another assistant or does not need input; RUN_NOT_FOUND */
async function waitingTask(
  input: A2aInput,
  assistant: Assistant,
  runId: string,
  context: string | undefined,
): Promise<TaskIds> {
  const { status, contextId: threadId } = await readTask(input, assistant, { runId, context });
  if (status.state === 'input-required') return { threadId, runId };
  throw new A2aError('invalidParams', `Task ${runId} is ${status.state} and does not need input. Omit taskId.`);
}

const uuid = /^[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}$/;

/** Reads a task of an assistant; without `context`, searches all threads. @throws RUN_NOT_FOUND */
export async function readTask(
  { services: { agents }, request }: A2aInput,
  { assistant_id: assistantId }: Assistant,
  { runId, context, historyLength }: { runId: string; context: string | undefined; historyLength?: number },
): Promise<Task> {
  if (![runId, context ?? runId].every((id) => uuid.test(id))) throw runlakeError('RUN_NOT_FOUND', { run: runId });
  const threadId = context ?? (await findThreadOfRun(agents.database, agents.deploymentId, runId));
  const options = { assistantId, ...(historyLength !== undefined && { historyLength }) };
  const params = { thread_id: threadId, run_id: runId };
  return asOperation(request, 'getAgentRun', { params }, () => taskOfRun(agents, { threadId, runId }, options));
}

/** Text becomes a message, so the input schema of the graph, if it has one, must contain `messages`. @throws A2aError */
async function requireMessages({ services: { agents } }: A2aInput, assistant: Assistant): Promise<void> {
  const { graph_id: graphId, config } = assistant;
  const { input_schema: schema } = await describeGraph(agents, graphId, config);
  if (!isObject(schema) || !isObject(schema.properties) || 'messages' in schema.properties) return;
  throw new A2aError(
    'invalidParams',
    'The assistant has no `messages` in its input schema. Send data parts instead of text parts.',
  );
}
