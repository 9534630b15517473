import { readCron } from '../../../pipelines/agents/crons/read-cron.ts';
import { updateCron as update } from '../../../pipelines/agents/crons/update-cron.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { given } from '../agent-schema.ts';
import { Cron, CronChangesBody, CronParams, normaliseEndTime, readPayload, requireValidPayload } from './cron-body.ts';

export const updateCron = defineAgentOperation({
  operationId: 'updateCron',
  method: 'PATCH',
  path: '/runs/crons/:cron_id',
  tag: 'crons',
  summary: 'Update a cron',
  description:
    'Absent fields stay unchanged; metadata is merged. Null removes the time zone or the end time. After a change of the schedule, the cron next fires at its first time after now.',
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
      ...(end_time !== undefined && { end_time: end_time === null ? null : normaliseEndTime(end_time) }),
      payload: readPayload(body, thread_id !== null),
    };
    requireValidPayload(agents, changes.payload);
    return update(database, deploymentId, params.cron_id, changes);
  },
});
