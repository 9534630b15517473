import type { CallToolRequest, CallToolResult } from '@modelcontextprotocol/sdk/types.js';
import { ErrorCode, McpError } from '@modelcontextprotocol/sdk/types.js';
import type { FastifyRequest } from 'fastify';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { awaitRunEnd } from '../../../pipelines/agents/runs/await-run-end.ts';
import { cancelRun } from '../../../pipelines/agents/runs/cancel-run.ts';
import { requestFollowedRun } from '../../../pipelines/agents/runs/request-run.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import { asOperation } from '../access/as-operation.ts';
import type { AgentServices } from '../agent-services.ts';
import { runRequestOf } from '../runs/run-request-of.ts';
import { findTools } from './list-tools.ts';

export interface McpInput {
  readonly caller: Caller;
  readonly request: FastifyRequest;
  readonly services: AgentServices;
}

/**
 * Runs the assistant of a tool without a thread and returns its output. If `signal` is aborted before the end, the run
 * is cancelled.
 */
export async function callTool(
  input: McpInput,
  { name, arguments: args = {} }: CallToolRequest['params'],
  signal: AbortSignal,
): Promise<CallToolResult> {
  const { agents } = input.services;
  const assistant = (await findTools(input, [])).get(name);
  if (assistant === undefined) throw new McpError(ErrorCode.InvalidParams, `Unknown tool: ${name.slice(0, 100)}`);
  try {
    const body = { assistant_id: assistant.assistant_id, input: args };
    const { run, reader } = await asOperation(input.request, 'waitForStatelessRun', { body }, (part) =>
      requestFollowedRun(agents, runRequestOf({ ...input, ...part })),
    );
    const awaited = { deploymentId: agents.deploymentId, threadId: run.thread_id, runId: run.run_id };
    try {
      const text = await awaitRunEnd(agents, awaited, { attached: reader, signal });
      return text === undefined ? failure('The call was cancelled.') : buildResult(text);
    } finally {
      reader.close();
      if (signal.aborted) await stop(input, awaited);
    }
  } catch (error) {
    if (isRunlakeError(error) && error.class === 'caller') return failure(error.message);
    throw error;
  }
}

async function stop(
  { services: { agents }, request }: McpInput,
  run: { readonly threadId: string; readonly runId: string },
): Promise<void> {
  await cancelRun(agents.database, agents.deploymentId, run, 'interrupt').catch((err) => {
    // The run has already ended.
    if (isRunlakeError(err) && err.code === 'RUN_NOT_FOUND') return;
    request.log.warn({ err, runId: run.runId }, 'cancelling a run after its client disconnected failed');
  });
  agents.wake();
}

function buildResult(text: string): CallToolResult {
  const output: unknown = JSON.parse(text);
  if (typeof output !== 'object' || output === null || Array.isArray(output))
    return { content: [{ type: 'text', text }] };
  if ('__error__' in output) {
    const { error, message } = output.__error__ as { readonly error: string; readonly message: string };
    return failure(`${error}: ${message}`);
  }
  return { content: [{ type: 'text', text }], structuredContent: { ...output } };
}

function failure(text: string): CallToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}
