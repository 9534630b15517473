import { Type } from 'typebox';
import { JsonObject } from '../../server/formats.ts';
import { releaseVersion } from '../../server/release.ts';
import { defineAgentOperation } from '../agent-operation.ts';

/** The release of the library's API that this server is compatible with: the one that clients and tests are written against. */
const COMPATIBLE_VERSION = '1.5.1';

/** What clients switch on; each says what is there. */
const flags = { assistants: true, crons: true, langsmith: true, langsmith_tracing_replicas: false };

export const getAgentInfo = defineAgentOperation({
  operationId: 'getAgentInfo',
  method: 'GET',
  path: '/info',
  tag: 'system',
  summary: 'What this agent server can do',
  access: { public: true, tenantScope: 'none' },
  schema: {
    response: {
      200: Type.Object({
        version: Type.String({ description: 'The release of the original server that this one is compatible with.' }),
        langgraph_js_version: Type.Optional(
          Type.String({ description: 'The release of the library that graphs load.' }),
        ),
        context: Type.Literal('js'),
        flags: JsonObject(),
        metadata: JsonObject({ description: 'The release of Runlake.' }),
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
