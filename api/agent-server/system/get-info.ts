import { Type } from 'typebox';
import { JsonObject } from '../../server/formats.ts';
import { releaseVersion } from '../../server/release.ts';
import { defineAgentOperation } from '../agent-operation.ts';

/** Release of the original server that this server is compatible with; clients and tests are written for it. */
const COMPATIBLE_VERSION = '1.5.1';

/** Feature flags that clients read. */
const flags = { assistants: true, crons: true, langsmith: true, langsmith_tracing_replicas: false };

export const getAgentInfo = defineAgentOperation({
  operationId: 'getAgentInfo',
  method: 'GET',
  path: '/info',
  tag: 'system',
  summary: 'Get the capabilities of the agent server',
  access: { public: true, tenantScope: 'none' },
  schema: {
    response: {
      200: Type.Object({
        version: Type.String({ description: 'Release of the original server that this server is compatible with.' }),
        langgraph_js_version: Type.Optional(Type.String({ description: 'Release of the library that graphs load.' })),
        context: Type.Literal('js'),
        flags: JsonObject(),
        metadata: JsonObject({ description: 'Contains the release of Runlake.' }),
      }),
    },
  },
  handler: async ({ services: { agents } }) => ({
    version: COMPATIBLE_VERSION,
    ...(agents.libraryVersion !== undefined && { langgraph_js_version: agents.libraryVersion }),
    context: 'js' as const,
    flags: { ...flags, mcp: agents.protocols?.mcp ?? true, a2a: agents.protocols?.a2a ?? true },
    metadata: { runlake_version: releaseVersion },
  }),
});
