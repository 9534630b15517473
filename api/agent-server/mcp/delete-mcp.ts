import { Type } from 'typebox';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { noRoute } from '../require-protocol.ts';

export const deleteMcp = defineAgentOperation({
  operationId: 'deleteMcp',
  method: 'DELETE',
  path: '/mcp',
  tag: 'mcp',
  summary: 'End a session of the Model Context Protocol',
  description: 'Always 404: the server has no sessions.',
  access: runs,
  errors: ['ROUTE_NOT_FOUND'],
  schema: { response: { 404: Type.Object({ detail: Type.String() }) } },
  handler: async ({ request }) => {
    throw noRoute(request);
  },
});
