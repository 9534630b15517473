import type { FastifyRequest } from 'fastify';
import type { Static } from 'typebox';
import { resolveAssistant } from '../../../pipelines/agents/assistants/resolve-assistant.ts';
import { createCron as create } from '../../../pipelines/agents/crons/create-cron.ts';
import type { Caller } from '../../../pipelines/tenants/caller.ts';
import '../access/agent-access.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import type { AgentServices } from '../agent-services.ts';
import { ThreadParams } from '../runs/run-paths.ts';
import { Cron, CronBody, normaliseEndTime, readPayload, requireValidPayload } from './cron-body.ts';

/** Maximum number of crons of a deployment: each costs a row and a check per firing. */
const maxCrons = 10_000;

const shared = {
  method: 'POST',
  tag: 'crons',
  access: runs,
  errors: [
    'ASSISTANT_NOT_FOUND',
    'CRON_SCHEDULE_INVALID',
    'CRON_TIMEZONE_UNKNOWN',
    'CRON_LIMIT_REACHED',
    'FIELD_NOT_BUILT',
    'WEBHOOK_INVALID',
    'FEEDBACK_ADDRESS_UNSET',
  ],
} as const;

async function make(
  {
    body,
    caller,
    services,
    request,
  }: { body: Static<typeof CronBody>; caller: Caller; services: AgentServices; request: FastifyRequest },
  threadId: string | null,
) {
  const { database, deploymentId } = services.agents;
  const payload = readPayload(body, threadId !== null);
  const access = request.agentAccess;
  const { assistant_id } = await resolveAssistant(database, deploymentId, body.assistant_id);
  requireValidPayload(services.agents, payload);
  return create(
    database,
    deploymentId,
    {
      assistant_id,
      thread_id: threadId,
      schedule: body.schedule,
      timezone: body.timezone ?? null,
      end_time: body.end_time ? normaliseEndTime(body.end_time) : null,
      on_run_completed: threadId === null ? (body.on_run_completed ?? 'delete') : null,
      enabled: body.enabled ?? true,
      payload: { ...payload, ...(access && { on_behalf_of: access.user }) },
      metadata: body.metadata ?? {},
      user_id: access?.user.identity ?? caller.userId,
    },
    { maxCrons },
  );
}

export const createCron = defineAgentOperation({
  ...shared,
  operationId: 'createCron',
  path: '/runs/crons',
  summary: 'Create a cron that starts each run on a new thread',
  schema: { body: CronBody, response: { 200: Cron } },
  handler: (input) => make(input, null),
});

export const createThreadCron = defineAgentOperation({
  ...shared,
  operationId: 'createThreadCron',
  path: '/threads/:thread_id/runs/crons',
  summary: 'Create a cron that starts runs on a thread',
  schema: { params: ThreadParams, body: CronBody, response: { 200: Cron } },
  errors: [...shared.errors, 'THREAD_NOT_FOUND'],
  handler: (input) => make(input, input.params.thread_id.toLowerCase()),
});
