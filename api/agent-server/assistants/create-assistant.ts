import { Type } from 'typebox';
import { createAssistant as create } from '../../../pipelines/agents/assistants/write-assistants.ts';
import { optional, Uuid } from '../../server/formats.ts';
import { defineAgentOperation, runs } from '../agent-operation.ts';
import { Closed, given, words } from '../agent-schema.ts';
import { Assistant, changeable, requireGraph } from './assistant-schema.ts';

/** Maximum number of assistants of a deployment, including those that graphs create. */
const maxAssistants = 100_000;

export const createAssistant = defineAgentOperation({
  operationId: 'createAssistant',
  method: 'POST',
  path: '/assistants',
  tag: 'assistants',
  summary: 'Create an assistant, which is a graph with a configuration',
  access: runs,
  errors: ['GRAPH_NOT_FOUND', 'ASSISTANT_EXISTS', 'LIMIT_REACHED'],
  schema: {
    body: Closed({
      graph_id: Type.String({ minLength: 1 }),
      assistant_id: optional(Uuid()),
      if_exists: optional(words(['raise', 'do_nothing'])),
      ...changeable,
    }),
    response: { 200: Assistant },
  },
  handler: async ({ body, services: { agents } }) => {
    requireGraph(agents, body.graph_id);
    const { assistant_id: assistantId, if_exists: ifExists, ...rest } = body;
    const assistant = {
      graphId: body.graph_id,
      ifExists: ifExists ?? ('raise' as const),
      ...given({ assistantId }),
      ...given({ config: rest.config, metadata: rest.metadata, name: rest.name, description: rest.description }),
      ...(rest.context === undefined ? {} : { context: rest.context }),
    };
    return create(agents.database, agents.deploymentId, assistant, { maxAssistants });
  },
});
