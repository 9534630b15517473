import '../access/agent-access.ts';
import { Type } from 'typebox';
import { listNamespaces } from '../../../pipelines/agents/store/list-namespaces.ts';
import { optional } from '../../server/formats.ts';
import { defineAgentOperation, reads } from '../agent-operation.ts';
import { Closed, Limit, Offset } from '../agent-schema.ts';
import { Labels } from './item-schema.ts';

export const listStoreNamespaces = defineAgentOperation({
  operationId: 'listStoreNamespaces',
  method: 'POST',
  path: '/store/namespaces',
  tag: 'store',
  summary: 'List the namespaces that have items',
  access: reads,
  schema: {
    body: Closed({
      prefix: optional(Labels('First labels; `*` matches any label.')),
      suffix: optional(Labels('Last labels; `*` matches any label.')),
      max_depth: optional(
        Type.Integer({
          minimum: 1,
          maximum: 100,
          description: 'Longer namespaces are truncated to this number of labels.',
        }),
      ),
      limit: Limit(),
      offset: Offset(),
    }),
    response: { 200: Type.Object({ namespaces: Type.Array(Type.Array(Type.String())) }) },
  },
  handler: async ({ body, services: { agents }, request }) => ({
    namespaces: await listNamespaces(agents.database, agents.deploymentId, {
      matches: [
        { side: 'prefix', labels: body.prefix ?? [] },
        { side: 'suffix', labels: body.suffix ?? [] },
      ],
      maxDepth: body.max_depth ?? undefined,
      required: request.agentAccess?.items,
      limit: body.limit ?? 100,
      offset: body.offset ?? 0,
    }),
  }),
});
