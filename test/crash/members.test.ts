/** Several `ingest` processes share the partitions, and join and leave while runs are sent. */
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { until } from '../infra/until.ts';
import { type RoleProcess, startRole } from '../role-process.ts';
import { load } from './client.ts';
import { expectMostAccepted } from './honest-answers.ts';
import { Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs, readMetric } from './pipeline.ts';

vi.setConfig({ testTimeout: 300_000 });

describe.runIf(stackPart('kafka') && stackPart('registry'))('ingest processes', () => {
  test('join, leave and are killed under load: no run is lost or duplicated', async () => {
    const { pipeline, close } = await openOnStack({ RUNLAKE_KAFKA_PARTITIONS: '4' });
    const more: RoleProcess[] = [];
    const join = async () => {
      const joined = await startRole('ingest', pipeline.buildEnvironment('ingest'));
      more.push(joined);
      return joined;
    };
    const stored = (of: RoleProcess) => readMetric(of, 'runlake_sink_insert_batch_rows_sum', 'run_events');
    const untilAllStore = async (...members: RoleProcess[]) => {
      const before = await Promise.all(members.map(stored));
      for (const [index, member] of members.entries()) {
        const stores = async () => (await stored(member)) > (before[index] as number);
        await until(`process ${index + 1} of ${members.length} to store`, stores, deadlineMs);
      }
    };
    onTestFinished(async () => {
      await Promise.all(more.map((each) => each.end('SIGKILL')));
      await close();
    });
    const ledger = new Ledger();
    const loading = load(pipeline, ledger, { senders: 3, batch: 10, pauseMs: 50 });
    const first = pipeline.process('ingest');
    await untilAllStore(first);
    const second = await join();
    await untilAllStore(first, second);
    expect(await second.end()).toBe(0);
    await untilAllStore(first);
    const third = await join();
    await untilAllStore(first, third);
    await pipeline.kill('ingest');
    const enough = ledger.acceptedCount + 50;
    await until('runs to be accepted', () => ledger.acceptedCount >= enough, deadlineMs);
    await loading.stop();
    expectMostAccepted(loading.answers);
    expect(await ledger.check(pipeline)).toBe(ledger.acceptedCount);
    for (const { output } of [first, ...more]) expect(output()).not.toMatch(/unhandled|uncaught/i);
  });
});
