import { Type } from 'typebox';
import { defineAgentOperation } from '../agent-operation.ts';

export const getAgentOk = defineAgentOperation({
  operationId: 'getAgentOk',
  method: 'GET',
  path: '/ok',
  tag: 'system',
  summary: 'Whether the process lives and, on request, reaches its database',
  access: { public: true, tenantScope: 'none' },
  errors: ['DATABASE_UNAVAILABLE'],
  whileDraining: true,
  schema: {
    query: Type.Object({ check_db: Type.Boolean({ default: false }) }),
    response: { 200: Type.Object({ ok: Type.Literal(true) }) },
  },
  handler: async ({ query, services: { agents } }) => {
    if (query.check_db) await agents.database.ping();
    return { ok: true as const };
  },
});
