import { Type } from 'typebox';
import { readAllRuns } from '../../pipelines/runs/query-runs.ts';
import { selectFields } from '../../pipelines/runs/run-select.ts';
import { findTraceRoots } from '../../pipelines/runs/trace-roots.ts';
import { endShares, type ListedShare, listShares } from '../../pipelines/shares/list-shares.ts';
import { requirePermission } from '../../pipelines/tenants/caller.ts';
import { nullable, optional, Timestamp, Uuid } from '../server/formats.ts';
import { pageParameters } from '../server/list-parameters.ts';
import { defineOperation } from '../server/operation.ts';
import { clickhouseErrors } from '../server/operation-errors.ts';
import { addRunExtras } from './run-extras.ts';

const shared = { share_token: Uuid(), created_at: Timestamp() };
const Entity = Type.Union([
  Type.Object({
    type: Type.Literal('run'),
    run_id: Uuid({ description: 'The root run of the shared trace.' }),
    run_name: nullable(Type.String({ description: 'Null if the run is not stored.' })),
    run_type: nullable(Type.String()),
    session_id: nullable(Uuid()),
    ...shared,
  }),
  Type.Object({
    type: Type.Literal('dataset'),
    dataset_id: Uuid(),
    dataset_name: nullable(Type.String()),
    ...shared,
  }),
  Type.Object({ type: Type.Literal('thread'), thread_id: Type.String(), session_id: Uuid(), ...shared }),
]);

const access = { permission: 'runs:share', tenantScope: 'workspace' } as const;
const about = 'Needs the permission `datasets:share` too.';

interface RootRun {
  readonly id: string;
  readonly trace_id: string;
  readonly name: string;
  readonly run_type: string;
  readonly session_id: string;
}

/** @param runs The stored root runs by trace. */
function formatEntity(share: ListedShare, runs: ReadonlyMap<string, RootRun>) {
  const { kind, targetId, token: share_token, createdAt: created_at } = share;
  if (kind === 'dataset') {
    return { type: kind, dataset_id: targetId, dataset_name: share.datasetName, share_token, created_at };
  }
  if (kind === 'thread') {
    return { type: kind, thread_id: share.threadId ?? '', session_id: share.projectId ?? '', share_token, created_at };
  }
  const run = runs.get(targetId);
  const { id: run_id = targetId, name = null, run_type = null, session_id = null } = run ?? {};
  return { type: 'run' as const, run_id, run_name: name, run_type, session_id, share_token, created_at };
}

export const sharedEntityOperations = [
  defineOperation({
    operationId: 'listSharedEntities',
    method: 'GET',
    path: '/workspaces/current/shared',
    summary: 'List what the workspace shares by tokens, newest first',
    description: about,
    access,
    errors: clickhouseErrors,
    schema: {
      query: Type.Object(pageParameters),
      response: { 200: Type.Object({ entities: Type.Array(Entity) }) },
    },
    handler: async ({ caller, query, services, request }) => {
      requirePermission(caller, 'datasets:share');
      const shares = await listShares(services, caller.workspaceId, query);
      const deps = addRunExtras(services, request);
      const traceIds = shares.flatMap(({ kind, targetId }) => (kind === 'trace' ? [targetId] : []));
      const rootIds = await findTraceRoots(services.clickhouse, caller.workspaceId, traceIds);
      const roots = readAllRuns<RootRun>(deps, {
        tenantId: caller.workspaceId,
        runIds: [...rootIds.values()],
        filter: {},
        selected: selectFields(['name', 'run_type', 'session_id', 'trace_id']),
        order: 'desc',
        limitRows: query.limit,
      });
      const runsByTrace = new Map<string, RootRun>();
      for await (const run of roots) runsByTrace.set(run.trace_id, run);
      return { entities: shares.map((share) => formatEntity(share, runsByTrace)) };
    },
  }),
  defineOperation({
    operationId: 'endSharing',
    method: 'DELETE',
    path: '/workspaces/current/shared',
    summary: 'End the sharing of several traces, threads and datasets',
    description: `${about} Takes effect at once. Tokens that are not valid are ignored.`,
    access,
    schema: {
      body: Type.Object({
        share_tokens: optional(Type.Array(Uuid(), { maxItems: 1_000 })),
        unshare_all: optional(Type.Boolean({ description: 'Everything that the workspace shares.' })),
      }),
      response: { 200: Type.Object({ message: Type.String() }) },
    },
    handler: async ({ caller, body, services }) => {
      requirePermission(caller, 'datasets:share');
      await endShares(services.database, caller.workspaceId, body.unshare_all ? 'all' : (body.share_tokens ?? []));
      return { message: 'Sharing ended' };
    },
  }),
];
