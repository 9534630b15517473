import { readCron } from '../../../pipelines/agents/crons/read-cron.ts';
import { updateCron as update } from '../../../pipelines/agents/crons/update-cron.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { given } from '../agent-schema.ts';
import { Cron, CronChangesBody, CronParams, endTimeOf, payloadOf, requireTakeable } from './cron-body.ts';

export const updateCron = defineAgentOperation({
  operationId: 'updateCron',
  method: 'PATCH',
  path: '/runs/crons/:cron_id',
  tag: 'crons',
  summary: 'Change a cron',
  description:
    'What is left out stays; metadata is merged. Null takes the time zone or the end away. With other times it fires next at the first that comes after now.',
  access: runs,
  errors: [
    'CRON_NOT_FOUND',
    'CRON_SCHEDULE_INVALID',
    'CRON_TIMEZONE_UNKNOWN',
    'FIELD_NOT_BUILT',
    'WEBHOOK_INVALID',
    'FEEDBACK_ADDRESS_UNSET',
  ],
  schema: { params: CronParams, body: CronChangesBody, response: { 200: Cron } },
  handler: async ({ params, body, services: { agents } }) => {
    const { database, deploymentId } = agents;
    const { thread_id } = await readCron(database, deploymentId, params.cron_id);
    const { schedule, timezone, end_time, on_run_completed, enabled, metadata } = body;
    const changes = {
      ...given({ schedule, enabled, metadata, ...(thread_id === null && { on_run_completed }) }),
      ...(timezone !== undefined && { timezone }),
      ...(end_time !== undefined && { end_time: end_time === null ? null : endTimeOf(end_time) }),
      payload: payloadOf(body, thread_id !== null),
    };
    requireTakeable(agents, changes.payload);
    return update(database, deploymentId, params.cron_id, changes);
  },
});
