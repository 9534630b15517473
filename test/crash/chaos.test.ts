/**
 * Random faults, sequentially and two at a time, under load from the stock SDK. `make chaos` runs it for longer. The
 * same seed selects the same faults; their durations, and therefore which of them overlap, depend on the machine.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { Random } from '../histories/random.ts';
import { isFullExtent } from '../house/extent.ts';
import { seed } from '../house/seed.ts';
import { until } from '../infra/until.ts';
import { pickFault } from './chaos-faults.ts';
import { Ledger } from './ledger.ts';
import { startDedicatedServers } from './own-servers.ts';
import { deadlineMs, Pipeline } from './pipeline.ts';
import { sdkLoad } from './sdk-load.ts';

const chaosMs = Number(process.env.CHAOS_MINUTES ?? (isFullExtent ? 2 : 0.5)) * 60_000;

vi.setConfig({ testTimeout: chaosMs + 600_000 });

describe.runIf(stackPart('kafka') && stackPart('registry') && stackPart('redis'))(`chaos, seed ${seed}`, () => {
  // The SDK logs every failure to the console.
  beforeEach(() => void vi.spyOn(console, 'error').mockImplementation(() => {}));
  beforeEach(() => void vi.spyOn(console, 'warn').mockImplementation(() => {}));
  afterEach(() => vi.restoreAllMocks());

  test('random faults under load from the stock SDK: every accepted run is stored once and counted', async () => {
    console.info(`RUNLAKE_TEST_SEED=${seed} CHAOS_MINUTES=${chaosMs / 60_000}`);
    const random = new Random(seed);
    const own = await startDedicatedServers();
    let pipeline: Pipeline | undefined;
    const happened: string[] = [];
    try {
      pipeline = await Pipeline.started(own.addresses);
      const ledger = new Ledger();
      const loading = sdkLoad(pipeline, ledger);
      await until('runs to be accepted', () => ledger.acceptedCount >= 20, deadlineMs);
      const scene = { random, pipeline, own };
      const end = performance.now() + chaosMs;
      const activeTargets = new Set<string>();
      const injectFaults = async () => {
        while (performance.now() < end) {
          const fault = pickFault(scene);
          if (!activeTargets.has(fault.target)) {
            activeTargets.add(fault.target);
            happened.push(`${Math.round((end - performance.now()) / 1_000)} s before the end: ${fault.what}`);
            await fault.inject();
            activeTargets.delete(fault.target);
          }
          await pause(random.int(2_000));
        }
      };
      await Promise.all([injectFaults(), injectFaults()]);
      const enough = ledger.acceptedCount + 20;
      await until('runs to be accepted again', () => ledger.acceptedCount >= enough, deadlineMs);
      await loading.stop();
      const storedCount = await ledger.check(pipeline);
      console.info(
        `${happened.length} faults, ${ledger.size} runs sent, ${ledger.acceptedCount} accepted, ${storedCount} stored`,
      );
      expect(happened.length).toBeGreaterThan(isFullExtent ? 3 : 0);
    } catch (error) {
      const logs = (['api', 'ingest'] as const)
        .map((role) => pipeline?.process(role)?.output().slice(-5_000))
        .join('\n');
      console.error(`RUNLAKE_TEST_SEED=${seed}\n${happened.join('\n')}\n${logs}`);
      throw error;
    } finally {
      await pipeline?.close();
      await own.remove();
    }
  });
});
