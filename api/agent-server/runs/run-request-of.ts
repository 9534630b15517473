import type { FastifyRequest } from 'fastify';
import type { RequestedRun } from '../../../pipelines/agents/runs/request-run.ts';
import type { RunRequest } from '../../../pipelines/agents/runs/run-request.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import type { AgentAccess } from '../access/agent-access.ts';

/** Errors of operations that create a run. */
export const runErrors = [
  'ASSISTANT_NOT_FOUND',
  'THREAD_NOT_FOUND',
  'THREAD_BUSY',
  'CHECKPOINT_NOT_FOUND',
  'GRAPH_NODE_UNKNOWN',
  'FIELD_NOT_BUILT',
  'WEBHOOK_INVALID',
  'FEEDBACK_ADDRESS_UNSET',
] as const;

/** Converts an HTTP request to a run request of the pipeline. */
export function runRequestOf(input: {
  readonly caller: Caller;
  readonly body: RunRequest;
  readonly request: FastifyRequest;
  readonly params?: { readonly thread_id?: string } | undefined;
  /** Default: that of the request. */
  readonly access?: AgentAccess | undefined;
}): RequestedRun {
  const { userId, keyId, workspaceId } = input.caller;
  const access = input.access ?? input.request.agentAccess;
  return {
    request: input.body,
    threadId: input.params?.thread_id?.toLowerCase(),
    sender: { userId, keyId, workspaceId },
    headers: input.request.headers,
    user: access?.user,
    threadAccess: access?.threads,
  };
}
