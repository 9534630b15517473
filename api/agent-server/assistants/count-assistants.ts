import { Type } from 'typebox';
import { countAssistants as count } from '../../../pipelines/agents/assistants/read-assistants.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed, given } from '../agent-schema.ts';
import { assistantFilter } from './search-assistants.ts';

export const countAssistants = defineAgentOperation({
  operationId: 'countAssistants',
  method: 'POST',
  path: '/assistants/count',
  tag: 'assistants',
  summary: 'Count matching assistants',
  access: reads,
  schema: { body: Closed(assistantFilter), response: { 200: Type.Integer() } },
  handler: async ({ body, services: { agents } }) =>
    count(
      agents.database,
      agents.deploymentId,
      given({ graphId: body.graph_id, name: body.name, metadata: body.metadata }),
    ),
});
