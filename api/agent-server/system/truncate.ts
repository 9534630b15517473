import { Type } from 'typebox';
import { fault } from '../../../infra/errors/runlake-error.ts';
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
  summary: 'Delete what the agent server holds, for tests',
  description:
    'Not there unless `RUNLAKE_AGENTS_ALLOW_TRUNCATE` is set. Threads take their runs and their state with them.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: {
    body: Closed({
      runs: optional(Type.Boolean()),
      threads: optional(Type.Boolean()),
      assistants: optional(Type.Boolean({ description: 'Those that clients made; those of graphs stay.' })),
      crons: optional(Type.Boolean()),
      store: optional(Type.Boolean()),
      checkpointer: optional(Type.Boolean({ description: 'The state of all threads.' })),
      checkpoint: optional(Type.Boolean({ description: 'The same.' })),
      checkpoints: optional(Type.Boolean({ description: 'The same.' })),
    }),
    response: { 204: Type.Null() },
  },
  handler: async ({ body, services: { agents }, request }) => {
    if (!agents.config.agentsAllowTruncate) {
      throw fault('ROUTE_NOT_FOUND', { method: request.method, path: '/internal/truncate' });
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
