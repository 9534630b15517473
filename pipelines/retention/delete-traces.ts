/**
 * Deletes traces with everything that belongs to them, in step 3 of `change-traces.ts`: runs, attachments, feedback,
 * streamed events, rows of annotation queues, deferred events, and dead-letter records of the in-process log. `traces`
 * and the roll-ups of usage stay, because bills are based on them. Locations of traces are deleted the second time only: until then they
 * give late events the stored time of their trace, so that it is not counted again in another hour. The runs are marked
 * as their traces are, because feedback on a run need not name its trace.
 */
import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import { deleteRows, storeDeletionKeys } from '../../infra/clickhouse/delete-rows.ts';
import { ofRunCondition } from '../attachments/attachment-sets.ts';
import { deleteUnstoredEvents } from '../dead-letters/delete-unstored-events.ts';
import { removeFromQueues } from '../queues/remove-gone-runs.ts';
import { toPlainText, toReadableJson } from '../runs/json-sql.ts';
import { markHoursOfRunsDirty } from '../usage/mark-hours-dirty.ts';
import { liveCondition, neverSeconds, traceTiers } from './lifetimes.ts';
import type { ChangeDeps, TraceChange } from './request-changes.ts';

const statementTimeoutMs = 3_600_000;
const bulk = { profile: 'bulk' } as const;

/** SQL condition: `deleted_at` is in the time range of the requests of this batch. */
const requestTimeCondition =
  'deleted_at BETWEEN fromUnixTimestamp64Micro({since:Int64}) AND fromUnixTimestamp64Micro({until:Int64})';
const projectCondition = 'tenant_id = {tenant:UUID} AND session_id = {project:UUID}';

/**
 * Deletes the traces of requests that concern one project and are all handled for the first or for the second time.
 *
 * @returns the ids of the requests, all of which are done.
 * @throws errors of the stores.
 */
export async function deleteTraces(
  { clickhouse, database }: ChangeDeps,
  changes: readonly TraceChange[],
  signal?: AbortSignal,
): Promise<number[]> {
  for (const change of changes) await markTraces(clickhouse, change);
  await deleteMarkedTraces({ clickhouse, database }, changes, signal);
  return changes.map(({ id }) => id);
}

/** Tolerance for clocks when the acceptance of a trace is compared with the time of a request. */
const clockToleranceMicros = 1_000_000;

/**
 * Marks the traces of a request as deleted if they are stored in the project of the request. Of the traces with the
 * metadata, only those whose first run was accepted before the request: the second execution finds newer traces, too.
 */
async function markTraces(clickhouse: ClickHouse, change: TraceChange): Promise<void> {
  const { tenantId, projectId, traceIds, metadata, requestedAtMicros } = change;
  const pairs = Object.entries(metadata === null ? {} : (JSON.parse(metadata) as Record<string, string>));
  // If the value is not a string, its JSON text is compared. A missing key is not an empty value.
  const buildMetadataCondition = (key: number) => {
    const valueSql = `JSONExtractRaw(readable_extra, 'metadata', {key${key}:String})`;
    return `${valueSql} != '' AND ${toPlainText(valueSql)} = {value${key}:String}`;
  };
  const candidatesSql =
    metadata === null
      ? '{traces:Array(UUID)}'
      : `(SELECT trace_id FROM runs WHERE ${projectCondition} AND trace_id IN (
           SELECT trace_id FROM (
             SELECT trace_id, ${toReadableJson(`ifNull(extra, '')`)} AS readable_extra
             FROM runs FINAL PREWHERE ${projectCondition} WHERE ${liveCondition}
           ) WHERE ${pairs.map((_, index) => buildMetadataCondition(index)).join(' AND ')}
         ) GROUP BY trace_id HAVING min(first_received_at) <= fromUnixTimestamp64Micro({acceptedUntil:Int64}))`;
  // A trace that was moved still has a location in its former project, which must not delete it.
  const traceIdsSql = `SELECT trace_id FROM trace_locations WHERE tenant_id = {tenant:UUID} AND trace_id IN ${candidatesSql}
    GROUP BY trace_id HAVING argMin(session_id, version) = {project:UUID}`;
  await clickhouse.command({
    name: 'mark-deleted-traces',
    sql: buildMarksSql(traceIdsSql),
    params: {
      tenant: tenantId,
      project: projectId,
      since: requestedAtMicros,
      acceptedUntil: requestedAtMicros + clockToleranceMicros,
      ...(traceIds && { traces: traceIds }),
      ...Object.fromEntries(
        pairs.flatMap(([key, value], index) => [
          [`key${index}`, key],
          [`value${index}`, value],
        ]),
      ),
    },
    ...bulk,
    timeoutMs: statementTimeoutMs,
  });
}

/** SQL that marks what a query returns in its only column as deleted, with the parameters `tenant` and `since`. */
const buildMarksSql = (idsSql: string) =>
  `INSERT INTO trace_marks (tenant_id, trace_id, trace_tier, expires_at, deleted_at)
   SELECT DISTINCT {tenant:UUID}, *, ${traceTiers.shortlived}, toDateTime(${neverSeconds}),
     fromUnixTimestamp64Micro({since:Int64})
   FROM (${idsSql})`;

/** Deletes what belongs to the marked traces of requests that concern one project. */
async function deleteMarkedTraces(
  { clickhouse, database }: Pick<ChangeDeps, 'clickhouse' | 'database'>,
  changes: readonly TraceChange[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const [{ tenantId, projectId, isSecond }] = changes as readonly [TraceChange];
  const deployments = await database.query<{ id: string }>(
    'SELECT deployment_id AS id FROM agents.deployments WHERE workspace_id = $1',
    [tenantId],
  );
  const params = {
    tenant: tenantId,
    project: projectId,
    since: Math.min(...changes.map(({ requestedAtMicros }) => requestedAtMicros)),
    until: Math.max(...changes.map(({ requestedAtMicros }) => requestedAtMicros)),
    deployments: deployments.map(({ id }) => id),
  };
  const rest = { params, timeoutMs: statementTimeoutMs, signal };
  const store = (sql: string) => storeDeletionKeys(clickhouse, { sql, ...rest });
  const markedTracesSql = `SELECT DISTINCT trace_id AS id FROM trace_marks WHERE tenant_id = {tenant:UUID} AND ${requestTimeCondition}`;
  const traces = await store(markedTracesSql);
  // A sink may have moved marked traces to other projects since.
  const projects = await store(
    `SELECT DISTINCT session_id AS id FROM trace_locations WHERE tenant_id = {tenant:UUID} AND trace_id IN (${markedTracesSql})
     UNION DISTINCT SELECT {project:UUID}`,
  );
  const projectsCondition = `tenant_id = {tenant:UUID} AND session_id IN ${projects}`;
  const runs = await store(
    `SELECT DISTINCT id FROM runs WHERE ${projectsCondition} AND trace_id IN (${markedTracesSql})`,
  );
  await clickhouse.command({
    name: 'mark-deleted-runs',
    sql: buildMarksSql(`SELECT id FROM ${runs}`),
    ...bulk,
    ...rest,
  });
  await deleteUnstoredEvents({ clickhouse, database }, tenantId, { sql: markedTracesSql, params });
  await removeFromQueues({ clickhouse, database }, tenantId, runs);
  const tenantCondition = 'tenant_id = {tenant:UUID}';
  const tracesCondition = `${projectsCondition} AND trace_id IN ${traces}`;
  // The second time, runs that are deleted already have a mark. A root run has the same id as its trace.
  const runCondition = `(run_id IN ${runs} OR run_id IN ${traces})`;
  // Delete runs last, because a repeated deletion needs them to find their attachments and feedback.
  const content = [
    { table: 'attachments', condition: `${tenantCondition} AND ${runCondition} AND ${ofRunCondition}` },
    { table: 'feedback', condition: `${tenantCondition} AND ${runCondition} OR (${tracesCondition})` },
    // The trace of a graph run has the same id as the graph run.
    { table: 'stream_events', condition: `organization_id IN {deployments:Array(UUID)} AND run_id IN ${traces}` },
    { table: 'run_locator', condition: `${tenantCondition} AND id IN ${runs}` },
    { table: 'runs', condition: tracesCondition },
  ];
  for (const { table, condition } of content) {
    await deleteRows(clickhouse, { name: `delete-traces-${table}`, table, condition, ...rest });
  }
  // The facts, too, show which hours had runs of the traces, until they are deleted: only rows that list such a run.
  await markHoursOfRunsDirty(
    { clickhouse, database },
    {
      sql: `SELECT tenant_id, hour FROM run_facts ARRAY JOIN \`runs.trace_id\` AS trace_id WHERE ${tracesCondition}`,
      ...rest,
    },
  );
  const factsCondition = `${projectsCondition} AND arrayExists(trace -> trace IN ${traces}, \`runs.trace_id\`)`;
  await deleteRows(clickhouse, {
    name: 'delete-traces-run_facts',
    table: 'run_facts',
    condition: factsCondition,
    ...rest,
  });
  if (!isSecond) return;
  // Last, because a repeated deletion needs them to find the projects. Also locations in other projects of the traces: a late
  // event would get one of them, and be counted in its hour.
  const located = await store(
    `SELECT trace_id AS id FROM trace_locations WHERE ${tenantCondition} AND trace_id IN (${markedTracesSql})
     GROUP BY trace_id HAVING countIf(session_id = {project:UUID}) > 0`,
  );
  await deleteRows(clickhouse, {
    name: 'delete-traces-trace_locations',
    table: 'trace_locations',
    condition: `${tenantCondition} AND trace_id IN ${located}`,
    ...rest,
  });
}
