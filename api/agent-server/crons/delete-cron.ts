import { Type } from 'typebox';
import { deleteCron as remove } from '../../../pipelines/agents/crons/delete-cron.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { CronParams } from './cron-body.ts';

export const deleteCron = defineAgentOperation({
  operationId: 'deleteCron',
  method: 'DELETE',
  path: '/runs/crons/:cron_id',
  tag: 'crons',
  summary: 'Delete a cron; its existing runs continue',
  access: runs,
  errors: ['CRON_NOT_FOUND'],
  schema: { params: CronParams, response: { 204: Type.Null() } },
  handler: async ({ params, services: { agents } }) => {
    await remove(agents.database, agents.deploymentId, params.cron_id);
    return new Answer({ status: 204 });
  },
});
