import { Type } from 'typebox';
import {
  readRunShare,
  readThreadShare,
  shareThread,
  shareTrace,
  unshareThread,
  unshareTrace,
} from '../../pipelines/runs/shared-traces.ts';
import { nullable, optional, Uuid } from '../server/formats.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { v2Errors } from './v2-runs.ts';

const sealErrors = ['SEAL_KEY_UNKNOWN', 'SEAL_BROKEN'] as const;
const shareErrors = ['CONFLICT', ...v2Errors, ...sealErrors] as const;
const traceShareDescription =
  'Anyone who has the token can read all runs of the trace, with feedback and without attachments, until it is deleted.';

const RunParams = Type.Object({ run_id: Uuid() });
const Share = Type.Object({ run_id: Uuid(), share_token: Uuid() });

const getRunShare = defineOperation({
  operationId: 'getRunShare',
  method: 'GET',
  path: '/runs/:run_id/share',
  summary: 'Get the token of a shared trace',
  description: '`null` if the trace of the run is not shared.',
  access: { permission: 'runs:read', tenantScope: 'workspace' },
  errors: shareErrors,
  schema: { params: RunParams, response: { 200: nullable(Share) } },
  handler: async ({ caller, params, services }) => {
    const run = { tenantId: caller.workspaceId, runId: params.run_id.toLowerCase() };
    const token = await readRunShare(services, run);
    return token === undefined ? null : { run_id: run.runId, share_token: token };
  },
});

const shareRun = defineOperation({
  operationId: 'shareRun',
  method: 'PUT',
  path: '/runs/:run_id/share',
  summary: 'Share the trace of a run',
  description: `${traceShareDescription} A shared trace keeps its token.`,
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errors: shareErrors,
  // The SDKs send the body without a content type.
  rawBody: {
    contentTypes: ['application/json'],
    description: 'Ignored: the server creates the token, because a token of the client may be easy to guess.',
  },
  schema: { params: RunParams, response: { 200: Share } },
  handler: async ({ caller, params, services }) => {
    const run = { tenantId: caller.workspaceId, runId: params.run_id.toLowerCase() };
    return { run_id: run.runId, share_token: await shareTrace(services, run, caller.userId) };
  },
});

const unshareRun = defineOperation({
  operationId: 'unshareRun',
  method: 'DELETE',
  path: '/runs/:run_id/share',
  summary: 'End the sharing of the trace of a run',
  description: 'Takes effect at once. Does nothing if the trace is not shared.',
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errors: clickhouseErrors,
  schema: { params: RunParams, response: { 200: Type.Object({ message: Type.String() }) } },
  handler: async ({ caller, params, services }) => {
    await unshareTrace(services, { tenantId: caller.workspaceId, runId: params.run_id.toLowerCase() });
    return { message: 'Sharing ended' };
  },
});

const shareV2Run = defineOperation({
  operationId: 'shareV2Run',
  method: 'POST',
  path: '/v2/runs/:run_id/share',
  summary: 'Share the trace of a run',
  description: `${traceShareDescription} A shared trace keeps its token.`,
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: shareErrors,
  schema: {
    params: RunParams,
    body: Type.Object({
      session_id: optional(Uuid({ description: '404 if the run is not in this project.' })),
      trace_id: optional(Uuid({ description: '404 if the run is not in this trace.' })),
    }),
    response: { 200: Type.Object({ share_token: Uuid() }) },
  },
  handler: async ({ caller, params, body, services }) => {
    const run = {
      tenantId: caller.workspaceId,
      runId: params.run_id.toLowerCase(),
      projectId: body.session_id?.toLowerCase(),
      traceId: body.trace_id?.toLowerCase(),
    };
    return { share_token: await shareTrace(services, run, caller.userId) };
  },
});

const unshareV2Run = defineOperation({
  operationId: 'unshareV2Run',
  method: 'DELETE',
  path: '/v2/runs/:run_id/share',
  summary: 'End the sharing of the trace of a run',
  description: 'Takes effect at once. Does nothing if the trace is not shared.',
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: clickhouseErrors,
  schema: {
    params: RunParams,
    body: optional(
      Type.Object({ session_id: optional(Uuid({ description: 'Accepted; the id of the run suffices.' })) }),
    ),
    response: { 204: Type.Null() },
  },
  handler: async ({ caller, params, services }) => {
    await unshareTrace(services, { tenantId: caller.workspaceId, runId: params.run_id.toLowerCase() });
    return null;
  },
});

const ThreadParams = Type.Object({ thread_id: Type.String({ minLength: 1, maxLength: 10_000 }) });
const ThreadProject = Type.Object({ project_id: Uuid() });
const threadShareDescription =
  'Anyone who has the token can read all runs of the traces of the thread, also of later ones, with feedback and without attachments.';

const identifyThread = (tenantId: string, threadId: string, projectId: string) => ({
  tenantId,
  projectId: projectId.toLowerCase(),
  threadId,
});

const getThreadShare = defineOperation({
  operationId: 'getThreadShare',
  method: 'GET',
  path: '/v2/threads/:thread_id/share',
  summary: 'Get the token of a shared thread',
  description: 'Without `share_token` if the thread is not shared.',
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: shareErrors,
  schema: {
    params: ThreadParams,
    query: ThreadProject,
    response: { 200: Type.Object({ share_token: Type.Optional(Uuid()) }) },
  },
  handler: async ({ caller, params, query, services }) => {
    const thread = identifyThread(caller.workspaceId, params.thread_id, query.project_id);
    const token = await readThreadShare(services, thread);
    return token === undefined ? {} : { share_token: token };
  },
});

const createThreadShare = defineOperation({
  operationId: 'createThreadShare',
  method: 'POST',
  path: '/v2/threads/:thread_id/share',
  summary: 'Share a thread',
  description: `${threadShareDescription} A shared thread keeps its token.`,
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errorStyle: 'problem',
  errors: shareErrors,
  schema: { params: ThreadParams, body: ThreadProject, response: { 200: Type.Object({ share_token: Uuid() }) } },
  handler: async ({ caller, params, body, services }) => {
    const thread = identifyThread(caller.workspaceId, params.thread_id, body.project_id);
    return { share_token: await shareThread(services, thread, caller.userId) };
  },
});

const deleteThreadShare = defineOperation({
  operationId: 'deleteThreadShare',
  method: 'DELETE',
  path: '/v2/threads/:thread_id/share',
  summary: 'End the sharing of a thread',
  description: 'Takes effect at once. Does nothing if the thread is not shared.',
  access: { permission: 'runs:share', tenantScope: 'workspace' },
  errorStyle: 'problem',
  schema: { params: ThreadParams, query: ThreadProject, response: { 204: Type.Null() } },
  handler: async ({ caller, params, query, services }) => {
    await unshareThread(services.database, identifyThread(caller.workspaceId, params.thread_id, query.project_id));
    return null;
  },
});

export const runShareOperations = [
  getRunShare,
  shareRun,
  unshareRun,
  shareV2Run,
  unshareV2Run,
  getThreadShare,
  createThreadShare,
  deleteThreadShare,
];
