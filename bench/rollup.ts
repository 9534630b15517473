/**
 * Cost of late facts: one late trace in each of 1,000 old hours, spread over a year, and the roll-up run that counts
 * those hours again, against the same count from `traces FINAL`, once, without writing.
 *
 * 2,000,000 traces of 50 projects, 200 users, 400 keys. Both sides in turns, on other hours each round. The roll-up run
 * reads dirty hours from Postgres, counts hours, sums days, writes both and deletes the dirty hours: `ratio` is its
 * time over that of the count alone.
 */
import assert from 'node:assert/strict';
import { markHoursDirty } from '../pipelines/usage/mark-hours-dirty.ts';
import { runRollUp } from '../pipelines/usage/rollup.ts';
import { withEngines } from './engines.ts';
import { median, ownCost, printFigures, round, timedMs } from './figures.ts';
import { fillUsage, hoursOf, type UsageLoad, yearOfUsage } from './usage-load/fill.ts';

const load: UsageLoad = { ...yearOfUsage, traces: 2_000_000 };
const lateHours = 1_000;
const rounds = 7;

await withEngines(async (engines) => {
  const { clickhouse } = engines;
  const filled = await fillUsage(engines, load);
  const all = hoursOf(load, filled.workspaceId);
  const [rollUps, counts]: [number[], number[]] = [[], []];
  for (let turn = -1; turn < rounds; turn++) {
    const hours = Array.from({ length: lateHours }, (_, index) => {
      return all[(Math.floor((index * all.length) / lateHours) + turn + 1) % all.length]!;
    });
    const externalTable = {
      name: 'touched',
      structure: 'tenant_id UUID, hour_seconds UInt32',
      rows: hours.map(({ tenantId, hourSeconds }) => [tenantId, hourSeconds]),
    };
    await clickhouse.command({
      name: 'bench-late',
      sql: `INSERT INTO run_events (version, location_version, tenant_id, session_id, start_time, trace_id, id, trace_time, first_received_at, user_id, key_id)
        SELECT 1, 1, tenant_id, generateUUIDv4(1), toDateTime64(hour_seconds, 6, 'UTC') AS began, generateUUIDv4(2) AS trace, trace,
          began, now64(6), generateUUIDv4(3), generateUUIDv4(4)
        FROM touched`,
      externalTable,
      settings: { max_partitions_per_insert_block: '0' },
    });
    await markHoursDirty(engines.database, hours);
    const countMs = await timedMs(() =>
      clickhouse.queryText({
        name: 'bench-count',
        sql: `SELECT tenant_id, entry.1 AS dimension, hour, entry.2 AS id, count()
          FROM traces FINAL
          ARRAY JOIN [('workspace', tenant_id), ('project', pick.3), ('user', pick.4), ('api_key', pick.5)] AS entry
          WHERE tenant_id IN (SELECT tenant_id FROM touched)
            AND hour IN (SELECT toDateTime(hour_seconds, 'UTC') FROM touched)
            AND (tenant_id, hour) IN (SELECT tenant_id, toDateTime(hour_seconds, 'UTC') FROM touched)
          GROUP BY tenant_id, dimension, hour, id`,
        externalTable,
        format: 'Null',
      }),
    );
    let counted = 0;
    const rollUpMs = await timedMs(async () => {
      counted = (await runRollUp(engines)).hours;
    });
    assert.equal(counted, lateHours);
    if (turn < 0) continue;
    counts.push(countMs);
    rollUps.push(rollUpMs);
  }
  printFigures({
    bench: 'rollup',
    ratio: round(median(rollUps) / median(counts)),
    target: 2,
    higher_is_better: false,
    pass_ms: round(median(rollUps)),
    count_ms: round(median(counts)),
    late_hours: lateHours,
    traces: load.traces,
    ...ownCost(),
    insert_seconds: round(filled.insertSeconds),
  });
});
