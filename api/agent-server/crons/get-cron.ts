import { readCron } from '../../../pipelines/agents/crons/read-cron.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Cron, CronParams } from './cron-body.ts';

export const getCron = defineAgentOperation({
  operationId: 'getCron',
  method: 'GET',
  path: '/runs/crons/:cron_id',
  tag: 'crons',
  summary: 'Get a cron',
  access: reads,
  errors: ['CRON_NOT_FOUND'],
  schema: { params: CronParams, response: { 200: Cron } },
  handler: ({ params, services: { agents } }) => readCron(agents.database, agents.deploymentId, params.cron_id),
});
