import { Type } from 'typebox';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { truncateAgents } from '../../../pipelines/agents/truncate-agents.ts';
import { optional } from '../../server/formats.ts';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed } from '../agent-schema.ts';

export const truncate = defineAgentOperation({
  operationId: 'truncate',
  method: 'POST',
  path: '/internal/truncate',
  tag: 'system',
  summary: 'Delete the data of the agent server, for tests',
  description: 'Only available in tests of Runlake. Deleting threads also deletes their runs and state.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: {
    body: Closed({
      runs: optional(Type.Boolean()),
      threads: optional(Type.Boolean()),
      assistants: optional(Type.Boolean({ description: 'Assistants that clients created; those of graphs stay.' })),
      crons: optional(Type.Boolean()),
      store: optional(Type.Boolean()),
      checkpointer: optional(Type.Boolean({ description: 'The state of all threads.' })),
      checkpoint: optional(Type.Boolean({ description: 'Same as `checkpointer`.' })),
      checkpoints: optional(Type.Boolean({ description: 'Same as `checkpointer`.' })),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents }, request }) => {
    if (!agents.config.agentsAllowTruncate) {
      throw runlakeError('ROUTE_NOT_FOUND', { method: request.method, path: '/internal/truncate' });
    }
    await truncateAgents(agents.database, agents.deploymentId, {
      runs: body.runs ?? false,
      threads: body.threads ?? false,
      assistants: body.assistants ?? false,
      crons: body.crons ?? false,
      store: body.store ?? false,
      checkpointer: (body.checkpointer || body.checkpoint || body.checkpoints) ?? false,
    });
    return new Answer({ status: 204 });
  },
});
