import { Type } from 'typebox';
import { defineOperation } from '../../server/operation.ts';

export const getOk = defineOperation({
  operationId: 'getOk',
  method: 'GET',
  path: '/ok',
  tag: 'health',
  summary: 'Check that the process is alive',
  description: 'Always 200. For readiness see `/ready`.',
  access: { public: true, tenantScope: 'none' },
  whileDraining: true,
  schema: { response: { 200: Type.Object({ ok: Type.Literal(true) }) } },
  handler: async () => ({ ok: true as const }),
});
