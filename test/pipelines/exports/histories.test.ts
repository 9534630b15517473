import { describe, expect, it } from 'vitest';
import type { ExportFormat, ExportScope } from '../../../pipelines/exports/record.ts';
import type { RunEvent, RunValues } from '../../../pipelines/ingest/run-event/run-event.ts';
import { parseTime } from '../../../pipelines/ingest/run-event/times.ts';
import { exportFields } from '../../../schemas/parquet/run-columns.ts';
import { forSuite } from '../../for-suite.ts';
import { type Draft, days, makeHistory } from '../../histories/histories.ts';
import { Random } from '../../histories/random.ts';
import { seed } from '../../house/seed.ts';
import { insertEvents, runEvent } from '../runs/run-events.ts';
import {
  dayMicros,
  exportAllChunks,
  openExporting,
  queryExpectedRows,
  type Row,
  rowsOf,
  wholeDay,
} from './exporting.ts';
import { readRowsWithClickhouse, readRowsWithDuckdb } from './other-readers.ts';

const exporting = forSuite(() => openExporting());

const versions: readonly ExportFormat['version'][] = ['v1', 'v2_beta'];
const compressions: readonly ExportFormat['compression'][] = ['none', 'gzip', 'snappy', 'zstandard'];
const allDays: ExportScope = {
  ...wholeDay,
  window: { fromMicros: days[0] as number, untilMicrosExclusive: (days.at(-1) as number) + 40 * dayMicros },
};

/** Stores the events of some traces in a few insert batches, in event order. */
async function store(random: Random, traces: number): Promise<void> {
  const batches: RunEvent[][] = [[], [], []];
  for (let trace = 0; trace < traces; trace++) {
    const { drafts } = makeHistory(random, { workspace: 0, client: 0, phases: batches.length });
    const traceTimeMicros = drafts[0]?.traceMicros as number;
    // In some traces, no event has a dotted_order.
    const isUnplaced = random.chance(0.2);
    for (const draft of drafts) batches[draft.phase]?.push(eventOf(draft, traceTimeMicros, isUnplaced));
  }
  for (const batch of batches) await insertEvents(exporting.reading.stores.clickhouse, batch);
}

function eventOf(draft: Draft, traceTimeMicros: number, isUnplaced: boolean): RunEvent {
  const { kind, runId, traceId, keyMicros, parentId, dottedOrder, values: members } = draft;
  const values: RunValues = {};
  const texts = { name: 'name', runType: 'run_type', referenceExampleId: 'reference_example_id' } as const;
  for (const [key, name] of Object.entries(texts)) {
    if (members[name] !== undefined) Object.assign(values, { [key]: JSON.parse(members[name]) });
  }
  const times = { startedAtMicros: 'start_time', endedAtMicros: 'end_time' } as const;
  for (const [key, name] of Object.entries(times)) {
    if (members[name] !== undefined) Object.assign(values, { [key]: parseTime(JSON.parse(members[name])) });
  }
  for (const name of ['inputs', 'outputs', 'extra', 'events', 'serialized', 'tags', 'error'] as const) {
    if (members[name] !== undefined) values[name] = Buffer.from(members[name]);
  }
  const counts = {
    promptTokens: 'prompt_tokens',
    completionTokens: 'completion_tokens',
    totalTokens: 'total_tokens',
  } as const;
  for (const [key, name] of Object.entries(counts)) {
    if (members[name] !== undefined)
      Object.assign(values, { [key]: Number(members[name]), [key.replace('Tokens', 'Cost')]: `0.${members[name]}` });
  }
  if (parentId !== undefined) values.parentRunId = parentId;
  return runEvent({
    kind,
    runId,
    traceId,
    startTimeMicros: keyMicros,
    traceTimeMicros,
    dottedOrder: isUnplaced ? undefined : dottedOrder,
    values,
  });
}

describe('histories of runs', () => {
  it(`the files of all days match the run query in three readers: seed ${seed}`, {
    timeout: 300_000,
  }, async () => {
    const random = new Random(seed);
    await store(random, 120);
    for (const version of versions) {
      const expected = await queryExpectedRows(exporting, allDays, version);
      expect(expected.length).toBeGreaterThan(150);
      const paths: string[] = [];
      const firstDay = allDays.window.fromMicros;
      const wanted = new Set(expected.map((row) => Math.floor((keyMicros(row) - firstDay) / dayMicros)));
      for (const day of [...wanted].sort((a, b) => a - b)) {
        const fromMicros = firstDay + day * dayMicros;
        const scope = { ...allDays, window: { fromMicros, untilMicrosExclusive: fromMicros + dayMicros } };
        const format = { version, compression: random.pick(compressions), fields: exportFields };
        const limits = { rows: random.pick([3, 50, 1_000]), bytes: random.pick([20_000, 1e9]) };
        const parts = await exportAllChunks(exporting, scope, format, limits);
        paths.push(...parts.map(({ path }) => path));
      }
      compare('hyparquet', (await Promise.all(paths.map(rowsOf))).flat(), expected);
      compare('DuckDB', await readRowsWithDuckdb(paths, version), expected);
      const expectedWithoutNullTags = expected.map((row) =>
        version === 'v1' ? row : { ...row, tags: row.tags ?? [] },
      );
      compare(
        'ClickHouse',
        await readRowsWithClickhouse(exporting.reading.stores, paths, version),
        expectedWithoutNullTags,
      );
    }
  });
});

function keyMicros(row: Row): number {
  const text = String(row.dotted_order).slice(-58, -36);
  const [, year, month, day, hour, minute, second, micros] = /^(.{4})(..)(..)T(..)(..)(..)(.{6})Z$/.exec(
    text,
  ) as string[];
  return parseTime(`${year}-${month}-${day}T${hour}:${minute}:${second}.${micros}Z`) as number;
}

function compare(reader: string, rows: readonly Row[], expected: readonly Row[]): void {
  expect(
    rows.map(({ id }) => id),
    reader,
  ).toEqual(expected.map(({ id }) => id));
  for (const [index, row] of rows.entries()) expect(row, `${reader}, row ${index}`).toEqual(expected[index]);
}
