/** Random faults, one after the other and two at a time, under load from the stock SDK. `make chaos` runs it for longer. */
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { Random } from '../histories/random.ts';
import { until } from '../infra/until.ts';
import { anyFault } from './chaos-faults.ts';
import { Ledger } from './ledger.ts';
import { ownServers } from './own-servers.ts';
import { deadlineMs, Pipeline } from './pipeline.ts';
import { sdkLoad } from './sdk-load.ts';

const chaosMs = Number(process.env.CHAOS_MINUTES ?? 2) * 60_000;
const seed = Number(process.env.CHAOS_SEED || Math.floor(Math.random() * 2 ** 31));

vi.setConfig({ testTimeout: chaosMs + 600_000 });

describe.runIf(stackPart('kafka') && stackPart('registry') && stackPart('redis'))(`chaos, seed ${seed}`, () => {
  test('random faults, strung together under load from the stock SDK: what was accepted is there once, and counted', async () => {
    console.info(`CHAOS_SEED=${seed} CHAOS_MINUTES=${chaosMs / 60_000}`);
    const random = new Random(seed);
    const own = await ownServers();
    let pipeline: Pipeline | undefined;
    const happened: string[] = [];
    try {
      pipeline = await Pipeline.started(own.addresses);
      const ledger = new Ledger();
      const loading = sdkLoad(pipeline, ledger);
      await until('runs to be accepted', () => ledger.acceptedCount >= 20, deadlineMs);
      const scene = { random, pipeline, own };
      for (const end = performance.now() + chaosMs; performance.now() < end; ) {
        const first = anyFault(scene);
        const second = anyFault(scene);
        const both = random.chance(0.4) && second.touches !== first.touches;
        const faults = both ? [first, second] : [first];
        happened.push(faults.map(({ what }) => what).join(' AND '));
        await Promise.all(faults.map((fault) => fault.happen()));
        await pause(random.int(2_000));
      }
      const enough = ledger.acceptedCount + 20;
      await until('runs to be accepted again', () => ledger.acceptedCount >= enough, deadlineMs);
      await loading.stop();
      const there = await ledger.check(pipeline);
      console.info(`${happened.length} faults, ${ledger.size} runs sent, ${ledger.acceptedCount} told, ${there} there`);
      expect(happened.length).toBeGreaterThan(3);
    } catch (error) {
      console.error(
        `CHAOS_SEED=${seed}\n${happened.join('\n')}\n${pipeline?.process('ingest')?.output().slice(-5_000)}`,
      );
      throw error;
    } finally {
      await pipeline?.close();
      await own.remove();
    }
  });
});
