import { randomBytes } from 'node:crypto';
import { loadConfig } from '../../infra/config/load.ts';
import type { DirtyHour } from '../../infra/event-log/event-log.ts';
import { bootstrap } from '../../pipelines/tenants/bootstrap.ts';
import { markHoursDirty } from '../../pipelines/usage/mark-hours-dirty.ts';
import { runRollUp } from '../../pipelines/usage/rollup.ts';
import type { BenchEngines } from '../engines.ts';
import { timedMs } from '../figures.ts';

export interface UsageLoad {
  readonly traces: number;
  readonly runsPerTrace: number;
  readonly startSeconds: number;
  readonly days: number;
  readonly projects: number;
  readonly users: number;
  /** Each key belongs to one user. */
  readonly keys: number;
}

/** A year of 50 projects, 200 users and 400 keys, one run a trace. */
export const yearOfUsage: Omit<UsageLoad, 'traces'> = {
  runsPerTrace: 1,
  startSeconds: Date.UTC(2025, 0, 1) / 1_000,
  days: 365,
  projects: 50,
  users: 200,
  keys: 400,
};

export interface FilledUsage {
  readonly key: string;
  readonly workspaceId: string;
  readonly insertSeconds: number;
  readonly rollUpSeconds: number;
}

/** Runs in each insert. */
const runsPerInsert = 200_000;

/**
 * Creates names for everything that the traces refer to, and the traces, evenly over the days in the order of time,
 * directly in `runs`, from which the views fill `traces`. Then it rolls everything up.
 */
export async function fillUsage(engines: BenchEngines, load: UsageLoad): Promise<FilledUsage> {
  const { key, workspaceId } = await addNames(engines, load);
  const insertMs = await timedMs(() => insertRuns(engines, load, workspaceId));
  await markHoursDirty(engines.database, hoursOf(load, workspaceId));
  const rollUpMs = await timedMs(async () => {
    while ((await runRollUp(engines)).more);
  });
  return { key, workspaceId, insertSeconds: insertMs / 1_000, rollUpSeconds: rollUpMs / 1_000 };
}

/** All hours of the load. */
export function hoursOf({ startSeconds, days }: UsageLoad, workspaceId: string): DirtyHour[] {
  return Array.from({ length: days * 24 }, (_, hour) => ({
    tenantId: workspaceId,
    hourSeconds: startSeconds + hour * 3_600,
  }));
}

/** Creates organisation, workspace and key of a first start, and names. */
async function addNames({ database }: BenchEngines, { projects, users, keys }: UsageLoad) {
  const key = `bench-${randomBytes(16).toString('hex')}`;
  await bootstrap(database, { ...loadConfig({}).config, bootstrapApiKey: key });
  const [workspace] = await database.query<{ id: string; organization_id: string }>(
    'SELECT id, organization_id FROM workspaces',
  );
  const { id: workspaceId, organization_id: organizationId } = workspace!;
  await database.execute(
    `INSERT INTO projects (id, workspace_id, name)
     SELECT md5('project ' || n)::uuid, $1, 'project ' || n FROM generate_series(0, $2 - 1) n`,
    [workspaceId, projects],
  );
  await database.execute(
    `INSERT INTO users (id, organization_id, email)
     SELECT md5('user ' || n)::uuid, $1, 'user' || n || '@bench.example' FROM generate_series(0, $2 - 1) n`,
    [organizationId, users],
  );
  await database.execute(
    `INSERT INTO api_keys (id, organization_id, user_id, hash, short_key, description, permissions)
     SELECT md5('key ' || n)::uuid, $1, md5('user ' || n % $2)::uuid, sha256(('key ' || n)::bytea), 'key' || n, 'bench', '{}'
     FROM generate_series(0, $3 - 1) n`,
    [organizationId, users, keys],
  );
  return { key, workspaceId };
}

async function insertRuns({ clickhouse }: BenchEngines, load: UsageLoad, workspaceId: string): Promise<void> {
  const { traces, runsPerTrace, startSeconds, days, projects, users, keys } = load;
  const id = (text: string) => `toUUID(lower(hex(MD5(${text}))))`;
  const runs = traces * runsPerTrace;
  for (let first = 0; first < runs; first += runsPerInsert) {
    await clickhouse.command({
      name: 'bench-insert',
      sql: `INSERT INTO run_events (version, location_version, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id)
        WITH intDiv(number, ${runsPerTrace}) AS trace, number % ${runsPerTrace} AS step,
          fromUnixTimestamp64Micro(toInt64(({start:UInt64} + trace * ${days * 86_400} / ${traces}) * 1000000)) AS began,
          ${id("concat('trace ', toString(trace))")} AS trace_id,
          cityHash64(trace, 'key') % ${keys} AS key
        SELECT 1, 1, {tenant:UUID}, ${id(`concat('project ', toString(cityHash64(trace, 'project') % ${projects}))`)},
          began + toIntervalMillisecond(step * 400), trace_id,
          if(step = 0, trace_id, ${id("concat('run ', toString(number))")}), began, began + toIntervalMillisecond(500),
          ${id(`concat('user ', toString(key % ${users}))`)}, ${id("concat('key ', toString(key))")}
        FROM numbers({first:UInt64}, {count:UInt64})`,
      params: { tenant: workspaceId, start: startSeconds, first, count: Math.min(runsPerInsert, runs - first) },
    });
  }
}
