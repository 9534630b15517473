/** Assigns lifetimes to attachments and feedback, which expire with the trace of their run. */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { getFieldOffset, readUuidAt } from '../../../infra/event-log/avro.ts';
import type { Sql } from '../../../infra/postgres/pool.ts';
import { feedbackEvents, type Topic } from '../../../schemas/topics.ts';
import { readTraceHeaders } from '../../attachments/read-attachment.ts';
import { buildRunKey, readRunLifetimes, type TenantRun } from '../../retention/align-with-runs.ts';
import {
  computeLifetime,
  defaultRetention,
  isSameLifetime,
  type ProjectRetentions,
  type RetentionConfig,
} from '../../retention/lifetimes.ts';
import type { TraceMark, TraceMarks } from '../../retention/trace-marks.ts';
import { locateRunsOfTenants } from '../../runs/locate-run.ts';
import { buildTraceKey, nilUuid } from '../run-event/run-event.ts';
import { parseTraceKey, readLocations } from './assign-trace-locations.ts';
import type { ValidRecord } from './split-into-batches.ts';

interface ExpiryDeps {
  readonly clickhouse: ClickHouse;
  readonly config: RetentionConfig;
  readonly retentions: ProjectRetentions;
  readonly marks: TraceMarks;
}

/** Returns whether any trace can expire. */
function canExpire({ retentionShortlivedDays, retentionLonglivedDays }: RetentionConfig): boolean {
  return retentionShortlivedDays !== undefined || retentionLonglivedDays !== undefined;
}

/**
 * Sets the lifetime of attachments and feedback to that of their run: as it is stored with the run, else with the trace
 * that the event names, else as the event states it. If none is known, the tier is longlived and the lifetime begins
 * now. Leaves out what belongs to deleted traces.
 *
 * @throws errors of the stores.
 */
export async function expireWithRuns(
  topic: Topic,
  events: readonly ValidRecord[],
  deps: ExpiryDeps,
): Promise<readonly ValidRecord[]> {
  const kept = await dropEventsOfDeletedTraces(topic, events, deps);
  if (!canExpire(deps.config)) return kept;
  const stated = kept.map(({ record }) => readTraceHeaders(record.headers));
  const projects = stated.flatMap((trace) => (trace && trace.projectId !== nilUuid ? [trace.projectId] : []));
  const [stored, retentions] = await Promise.all([
    readRunLifetimes(deps.clickhouse, readTenantRuns(topic, kept)),
    deps.retentions.of(projects),
  ]);
  const ofRuns = kept.map(({ record }) => stored.get(readTenantRunKey(topic, record.value)));
  const traceKeys = kept.map(({ record }, index) => {
    const trace = ofRuns[index] === undefined ? stated[index] : undefined;
    return trace && buildTraceKey(readUuidAt(record.value, getFieldOffset(topic, 'tenant_id')), trace.traceId);
  });
  const unstored = new Set(traceKeys.filter((key) => key !== undefined));
  const located = await readLocations(deps.clickhouse, [...unstored].map(parseTraceKey));
  const ofTraces = new Map(located.map(({ key, locations }) => [key, locations[0]?.lifetime]));
  return kept.map((event, index) => {
    const trace = stated[index];
    const retention = retentions.get(trace?.projectId ?? nilUuid);
    const fallback =
      trace === undefined || retention === undefined
        ? computeLifetime(deps.config, defaultRetention, Date.now() * 1_000)
        : computeLifetime(deps.config, retention, trace.traceTimeMicros);
    return { ...event, lifetime: ofRuns[index] ?? ofTraces.get(traceKeys[index] ?? '') ?? fallback };
  });
}

async function dropEventsOfDeletedTraces(
  topic: Topic,
  events: readonly ValidRecord[],
  { clickhouse, marks }: Pick<ExpiryDeps, 'clickhouse' | 'marks'>,
): Promise<readonly ValidRecord[]> {
  if (events.length === 0 || !(await marks.hasAnyMark())) return events;
  const runs = events.map(({ record }) => parseTenantRunKey(readTenantRunKey(topic, record.value)));
  const located = topic === feedbackEvents ? await locateRunsOfTenants(clickhouse, runs) : new Map<string, string>();
  const traces = events.map(({ record }, index) => {
    const { tenantId, runId } = runs[index]!;
    const traceId = located.get(`${tenantId} ${runId}`) ?? readTraceHeaders(record.headers)?.traceId ?? runId;
    return { tenantId, traceId };
  });
  const key = ({ tenantId, traceId }: Pick<TraceMark, 'tenantId' | 'traceId'>) => `${tenantId} ${traceId}`;
  const found = await marks.of(traces);
  const deleted = new Set(found.filter(({ isDeleted }) => isDeleted).map(key));
  return deleted.size === 0 ? events : events.filter((_, index) => !deleted.has(key(traces[index]!)));
}

/** Reads tenant and run of an event, as one key. */
function readTenantRunKey(topic: Topic, value: Buffer): string {
  return buildRunKey({
    tenantId: readUuidAt(value, getFieldOffset(topic, 'tenant_id')),
    runId: readUuidAt(value, getFieldOffset(topic, 'run_id')),
  });
}

function parseTenantRunKey(key: string): TenantRun {
  return { tenantId: key.slice(0, 36), runId: key.slice(37) };
}

function readTenantRuns(topic: Topic, events: readonly ValidRecord[]): TenantRun[] {
  const keys = new Set(events.map(({ record }) => readTenantRunKey(topic, record.value)));
  return [...keys].map(parseTenantRunKey);
}

/**
 * Requests what the job has to do for the runs of stored events: to keep the traces of runs with feedback, and to align
 * the rows of runs whose lifetime is another one now, or is not stored yet (`align-with-runs.ts`). The job checks whether
 * the feedback extends the retention of its trace. Call this function after the insert and before the offset is
 * committed. A repeated request is harmless.
 *
 * @throws errors of the stores.
 */
export async function requestRetention(
  topic: Topic,
  events: readonly ValidRecord[],
  { clickhouse, config, database }: Pick<ExpiryDeps, 'clickhouse' | 'config'> & { readonly database: Sql },
): Promise<void> {
  if (!canExpire(config)) return;
  const ofRuns = events.filter(({ record }) => !readTenantRunKey(topic, record.value).endsWith(nilUuid));
  const keepsTraces = topic === feedbackEvents && config.retentionShortlivedDays !== undefined;
  const lifetimes = keepsTraces ? undefined : await readRunLifetimes(clickhouse, readTenantRuns(topic, ofRuns));
  const requested = ofRuns.filter(({ record, lifetime }) => {
    const stored = lifetimes?.get(readTenantRunKey(topic, record.value));
    return stored === undefined || lifetime === undefined || !isSameLifetime(stored, lifetime);
  });
  const runs = readTenantRuns(topic, requested);
  if (runs.length === 0) return;
  await database.query(
    `INSERT INTO trace_changes (kind, tenant_id, run_id)
     SELECT 'keep', tenant_id, run_id FROM unnest($1::uuid[], $2::uuid[]) AS runs (tenant_id, run_id)`,
    [runs.map(({ tenantId }) => tenantId), runs.map(({ runId }) => runId)],
  );
}
