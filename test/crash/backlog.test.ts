/** A backlog many times larger than the sink's fetch buffer: fetching pauses and resumes, and all events are stored. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { askClickhouse } from '../infra/embedded/processes.ts';
import { until } from '../infra/until.ts';
import { testSettings } from '../test-settings.ts';
import { post, untilAccepted } from './client.ts';
import { type Entry, Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs } from './pipeline.ts';

vi.setConfig({ testTimeout: 300_000 });

const mib = 1024 ** 2;
const backlogRuns = 120;
const inputBytes = mib;
/**
 * Limit of the sink's fetch buffer. Memory use is higher, because one fetch may exceed the limit and data is copied.
 */
const maxFetchedBytes = 8 * mib;
/** Without the pause, memory would grow by more than the whole backlog. */
const maxGrowthMiB = 60;
/** Nothing signals that the sink has paused. Without the pause, it has all events before the last run is sent. */
const observedMs = 4_000;

describe.runIf(stackPart('kafka') && stackPart('registry'))('a backlog', () => {
  test('of 120 MiB while ClickHouse is down: a sink with a fetch limit of 8 MiB needs little memory and stores all events', async () => {
    const { pipeline, close } = await openOnStack(testSettings({ maxFetchedBytes, publishTimeoutMs: 30_000 }));
    const ledger = new Ledger();
    const sent: Entry[] = [];
    const send = async (count: number, inputs: string) => {
      const runs = Array.from({ length: count }, () => ({ ...ledger.newRun(), inputs }));
      sent.push(...runs);
      await untilAccepted(() => post(pipeline, runs));
    };
    onTestFinished(() => close());
    await send(1, 'small');
    await pipeline.settled();
    const { pid } = pipeline.process('ingest');
    const before = rssMiB(pid);
    let highest = before;
    const sampling = setInterval(() => {
      highest = Math.max(highest, rssMiB(pid));
    }, 50);
    try {
      pipeline.ways.ingest.clickhouse.away(true);
      while (sent.length <= backlogRuns) await send(4, `${sent.length} ${'x'.repeat(inputBytes)}`);
      const lag = () => pipeline.metric('ingest', 'runlake_event_log_lag_events', 'run-events');
      await until('all events to wait in Kafka', async () => (await lag()) === backlogRuns, deadlineMs);
      await pause(observedMs);
    } finally {
      clearInterval(sampling);
    }
    expect(highest - before, 'MiB more than before').toBeLessThan(maxGrowthMiB);
    pipeline.ways.ingest.clickhouse.away(false);
    await pipeline.settled();
    const sql = 'SELECT id, lower(hex(MD5(inputs))) FROM runs FINAL FORMAT TSV';
    const stored = (await askClickhouse(pipeline.servers.clickhouseUrl, sql)).split('\n');
    const expected = sent.map(({ id, inputs }) => `${id}\t${md5(JSON.stringify({ text: inputs }))}`);
    expect(stored.sort()).toEqual(expected.sort());
  });
});

const md5 = (text: string) => createHash('md5').update(text).digest('hex');

function rssMiB(pid: number): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
}
