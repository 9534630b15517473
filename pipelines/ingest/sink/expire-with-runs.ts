/** Assigns lifetimes to attachments and feedback, which expire with the trace of their run. */
import type { ClickHouse } from '../../../infra/clickhouse/clickhouse.ts';
import { lookupSettings } from '../../../infra/clickhouse/settings.ts';
import { getFieldOffset, readUuidAt } from '../../../infra/event-log/avro.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { feedbackEvents, type Topic } from '../../../schemas/topics.ts';
import { readTraceHeaders } from '../../attachments/read-attachment.ts';
import {
  computeLifetime,
  defaultRetention,
  type Lifetime,
  type ProjectRetentions,
  parseTierNumber,
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
    readLifetimes(deps.clickhouse, topic, kept),
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
  const runs = events.map(({ record }) => {
    const [tenantId = '', runId = ''] = readTenantRunKey(topic, record.value).split(' ');
    return { tenantId, runId };
  });
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
  return `${readUuidAt(value, getFieldOffset(topic, 'tenant_id'))} ${readUuidAt(value, getFieldOffset(topic, 'run_id'))}`;
}

async function readLifetimes(
  clickhouse: ClickHouse,
  topic: Topic,
  events: readonly ValidRecord[],
): Promise<Map<string, Lifetime>> {
  const keys = new Set(events.map(({ record }) => readTenantRunKey(topic, record.value)));
  if (keys.size === 0) return new Map();
  const rows = await clickhouse.query<{ tenant_id: string; id: string; tier: number; expires: number }>({
    name: 'read-run-lifetimes',
    settings: lookupSettings,
    sql: `SELECT tenant_id, id, max(trace_tier) AS tier, toUnixTimestamp(max(expires_at)) AS expires
          FROM run_locator WHERE (tenant_id, id) IN keys GROUP BY tenant_id, id`,
    externalTable: { name: 'keys', structure: 'tenant_id UUID, id UUID', rows: [...keys].map((key) => key.split(' ')) },
  });
  return new Map(
    rows.map(({ tenant_id, id, tier, expires }) => [
      `${tenant_id} ${id}`,
      { tier: parseTierNumber(tier), expiresAtSeconds: expires },
    ]),
  );
}

/**
 * Requests that the traces of runs with feedback become longlived; the job checks whether the feedback extends the
 * retention of its trace. Call this function after the insert and before the offset is committed. A repeated request is
 * harmless.
 */
export async function keepTracesWithFeedback(
  database: Pick<Database, 'query'>,
  config: RetentionConfig,
  events: readonly ValidRecord[],
): Promise<void> {
  if (config.retentionShortlivedDays === undefined) return;
  const runs = new Set(
    events.map(({ record }) => readTenantRunKey(feedbackEvents, record.value)).filter((key) => !key.endsWith(nilUuid)),
  );
  if (runs.size === 0) return;
  const pairs = [...runs].map((key) => key.split(' '));
  await database.query(
    `INSERT INTO trace_changes (kind, tenant_id, run_id)
     SELECT 'keep', tenant_id, run_id FROM unnest($1::uuid[], $2::uuid[]) AS runs (tenant_id, run_id)`,
    [pairs.map(([tenantId]) => tenantId), pairs.map(([, runId]) => runId)],
  );
}
