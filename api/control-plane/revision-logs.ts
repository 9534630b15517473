import { type Static, Type } from 'typebox';
import type { Sql } from '../../infra/postgres/database.ts';
import { readDeployment, readRevision } from '../../pipelines/deployments/read-deployments.ts';
import { followLog, type LogStage, readLog } from '../../pipelines/deployments/revision-logs.ts';
import { createEventStream, eventStreamHeaders, eventStreamType } from '../agent-server/streaming/sse.ts';
import { jsonMediaType, nullable, OneOf, optional, Text, Timestamp } from '../server/formats.ts';
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
  logs: Type.Array(
    Type.Object({ id: Type.String(), timestamp: Timestamp(), level: Type.String(), message: Type.String() }),
  ),
  next_offset: nullable(Type.String()),
});
const LogRequest = Type.Object({
  order: optional(OneOf(['asc', 'desc']), { description: 'Default: `asc`, the oldest first.' }),
  limit: optional(Type.Integer({ minimum: 1 }), { description: 'More than 100 count as 100. Default: 50.' }),
  offset: optional(Type.String({ pattern: '^\\d{1,15}$' })),
  level: optional(OneOf(['INFO']), { description: 'Output of builds and replicas has no other level.' }),
  query: optional(Text({ maxLength: 1_000 }), { description: 'Only parts of the log with this text.' }),
  start_time: optional(Timestamp()),
  end_time: optional(Timestamp()),
});
const { deployment_id: project_id, revision_id } = RevisionParams.properties;
const logParams = { project_id, revision_id };

/** Reads a page of logs in the form of `langgraph deploy`. */
async function readStoredLogs(
  database: Sql,
  revisionId: string | null,
  stages: readonly LogStage[],
  { order, limit, offset, query, start_time: from, end_time: to }: Static<typeof LogRequest>,
): Promise<Static<typeof StoredLogs>> {
  const page = { after: Number(offset ?? 0), limit: Math.min(limit ?? 50, maxChunks), order: order ?? 'asc' };
  const chunks =
    revisionId === null ? [] : await readLog(database, revisionId, { ...page, stages, from, to, text: query });
  return {
    logs: chunks.map(({ sequence, at, text }) => ({
      id: String(sequence),
      timestamp: at,
      level: 'INFO',
      message: text,
    })),
    next_offset: chunks.length > 0 ? String(chunks.at(-1)?.sequence) : (offset ?? null),
  };
}

const getBuildLogs = defineOperation({
  operationId: 'getBuildLogs',
  method: 'POST',
  path: '/projects/:project_id/revisions/:revision_id/build_logs',
  summary: 'Read the build log of a revision, in the form of `langgraph deploy`',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: Type.Object(logParams), body: LogRequest, response: { 200: StoredLogs } },
  handler: async ({ caller, params, body, services: { database } }) => {
    const { id } = await readRevision(database, caller.workspaceId, params.project_id, params.revision_id);
    return readStoredLogs(database, id, ['build'], body);
  },
});

const getDeployLogs = defineOperation({
  operationId: 'getDeployLogs',
  method: 'POST',
  path: '/projects/:project_id/revisions/:revision_id/deploy_logs',
  summary: 'Read the log of the replicas of a revision, in the form of `langgraph deploy`',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: Type.Object(logParams), body: LogRequest, response: { 200: StoredLogs } },
  handler: async ({ caller, params, body, services: { database } }) => {
    const { id } = await readRevision(database, caller.workspaceId, params.project_id, params.revision_id);
    return readStoredLogs(database, id, ['deploy', 'run'], body);
  },
});

const getProjectDeployLogs = defineOperation({
  operationId: 'getProjectDeployLogs',
  method: 'POST',
  path: '/projects/:project_id/deploy_logs',
  summary: 'Read the log of the replicas of a deployment, in the form of `langgraph deploy`',
  description: 'The log is that of the revision that serves requests or, if there is none, of the latest.',
  access: readAccess,
  errors: ['NOT_FOUND'],
  schema: { params: Type.Object({ project_id }), body: LogRequest, response: { 200: StoredLogs } },
  handler: async ({ caller, params, body, services: { database } }) => {
    const { activeRevisionId, latestRevisionId } = await readDeployment(
      database,
      caller.workspaceId,
      params.project_id,
    );
    return readStoredLogs(database, activeRevisionId ?? latestRevisionId, ['deploy', 'run'], body);
  },
});

export const revisionLogOperations = [getRevisionLogs, getBuildLogs, getDeployLogs, getProjectDeployLogs];
