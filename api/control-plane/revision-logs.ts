import { Type } from 'typebox';
import { readRevision } from '../../pipelines/deployments/read-deployments.ts';
import { followLog, type LogChunk, readLog } from '../../pipelines/deployments/revision-logs.ts';
import { createEventStream, eventStreamHeaders, eventStreamType } from '../agent-server/streaming/sse.ts';
import { jsonMediaType, nullable, OneOf, Timestamp } from '../server/formats.ts';
import { defineOperation, RawResponse } from '../server/operation.ts';
import { RevisionParams, readAccess } from './deployment-fields.ts';

/** Logs of revisions: what their builds and replicas write. Secrets are masked. */

const Position = () => Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 });

const heartbeatMs = 15_000;
/** Maximum number of chunks of one response; a chunk has at most 16 KiB. */
const maxChunks = 100;

const getRevisionLogs = defineOperation({
  operationId: 'getRevisionLogs',
  method: 'GET',
  path: '/v2/deployments/:deployment_id/revisions/:revision_id/logs',
  summary: 'Read or follow the log of a revision',
  description:
    'With `Accept: text/event-stream`, sends what is stored and then what follows, until the revision has its final status: events `log`, with ' +
    'the sequence number as id, and `status`. The header Last-Event-ID continues after an event.',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: {
    params: RevisionParams,
    query: Type.Object({
      after: Position(),
      limit: Type.Integer({ minimum: 1, maximum: maxChunks, default: maxChunks }),
      stage: Type.Optional(OneOf(['build', 'deploy', 'run'])),
    }),
    response: {
      200: Type.Object({
        logs: Type.Array(
          Type.Object({ sequence: Type.Integer(), at: Timestamp(), stage: Type.String(), text: Type.String() }),
        ),
        next_after: Type.Integer({ description: '`after` of the next page.' }),
        status: Type.String({ description: 'Status of the revision.' }),
      }),
    },
    produces: jsonMediaType,
    alsoProduces: { [eventStreamType]: Type.String() },
  },
  handler: async ({ caller, params, query, services, request }) => {
    const { database } = services;
    const revision = await readRevision(database, caller.workspaceId, params.deployment_id, params.revision_id);
    const stages = query.stage && [query.stage];
    if (request.headers.accept?.includes(eventStreamType) !== true) {
      const logs = await readLog(database, revision.id, { after: query.after, limit: query.limit, stages });
      const body = { logs, next_after: logs.at(-1)?.sequence ?? query.after, status: revision.status };
      return new RawResponse({ body: Buffer.from(JSON.stringify(body)) });
    }
    const after = Number(/^\d{1,15}$/.exec(String(request.headers['last-event-id'] ?? ''))?.[0] ?? query.after);
    const ended = new AbortController();
    const updates = followLog(database, revision.id, { after, stages }, ended.signal);
    const body = createEventStream({
      source: { [Symbol.asyncIterator]: () => updates, close: () => ended.abort() },
      frame: ({ chunks, status }) => [
        ...chunks.map((chunk) => ({ event: 'log', id: String(chunk.sequence), data: encode(chunk) })),
        { event: 'status', data: encode({ status }) },
      ],
      heartbeatMs,
      stopping: request.server.drainStarted,
      accessEnded: request.access?.ended,
      clientReconnects: true,
      logger: request.log,
    });
    return new RawResponse({ headers: eventStreamHeaders, body });
  },
});

const encode = (value: object) => Buffer.from(JSON.stringify(value));

const StoredLogs = Type.Object({
  logs: Type.Array(Type.Object({ timestamp: Timestamp(), level: Type.String(), message: Type.String() })),
  next_offset: nullable(Type.String()),
});
const LogRequest = Type.Object({
  order: Type.Optional(Type.String()),
  limit: Type.Optional(Type.Integer({ minimum: 1, maximum: maxChunks })),
  offset: Type.Optional(nullable(Type.String({ pattern: '^\\d{1,15}$' }))),
});
const LogParams = Type.Object({
  project_id: RevisionParams.properties.deployment_id,
  revision_id: RevisionParams.properties.revision_id,
});

/** The form in which `langgraph deploy` reads logs. */
function formatStoredLogs(chunks: readonly LogChunk[], offset: string | null | undefined) {
  const logs = chunks.map(({ at, text }) => ({ timestamp: at, level: 'INFO', message: text }));
  return { logs, next_offset: chunks.length > 0 ? String(chunks.at(-1)?.sequence) : (offset ?? null) };
}

const getBuildLogs = defineOperation({
  operationId: 'getBuildLogs',
  method: 'POST',
  path: '/projects/:project_id/revisions/:revision_id/build_logs',
  summary: 'Read the build log of a revision, in the form of `langgraph deploy`',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: LogParams, body: LogRequest, response: { 200: StoredLogs } },
  handler: async ({ caller, params, body, services: { database } }) => {
    const { id } = await readRevision(database, caller.workspaceId, params.project_id, params.revision_id);
    const page = { after: Number(body.offset ?? 0), limit: body.limit ?? 50, stages: ['build'] as const };
    return formatStoredLogs(await readLog(database, id, page), body.offset);
  },
});

const getDeployLogs = defineOperation({
  operationId: 'getDeployLogs',
  method: 'POST',
  path: '/projects/:project_id/revisions/:revision_id/deploy_logs',
  summary: 'Read the log of the replicas of a revision, in the form of `langgraph deploy`',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: LogParams, body: LogRequest, response: { 200: StoredLogs } },
  handler: async ({ caller, params, body, services: { database } }) => {
    const { id } = await readRevision(database, caller.workspaceId, params.project_id, params.revision_id);
    const page = { after: Number(body.offset ?? 0), limit: body.limit ?? 50, stages: ['deploy', 'run'] as const };
    return formatStoredLogs(await readLog(database, id, page), body.offset);
  },
});

export const revisionLogOperations = [getRevisionLogs, getBuildLogs, getDeployLogs];
