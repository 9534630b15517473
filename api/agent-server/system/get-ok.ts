import { Type } from 'typebox';
import { Answer } from '../../server/operation.ts';
import { defineAgentOperation } from '../agent-operation.ts';

/** Identifies the server, even if all other system routes are disabled. Source: RFC 9110, "Server". */
export const serverName = 'runlake-agents';

export const getAgentOk = defineAgentOperation({
  operationId: 'getAgentOk',
  method: 'GET',
  path: '/ok',
  tag: 'system',
  summary: 'Check that the process is alive and, optionally, that Postgres is reachable',
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
