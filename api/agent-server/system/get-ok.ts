import { Type } from 'typebox';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation } from '../agent-operation.ts';

/** What answers, also where nothing else is told of it. Source: RFC 9110, "Server". */
export const serverName = 'runlake-agents';

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
    return new Answer({ headers: { server: serverName }, body: { ok: true } });
  },
});
