/** Connections between roles and servers stall for longer than every time limit on them, without being closed. */
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test, vi } from 'vitest';
import { stackPart } from '../engines/stack.ts';
import { until } from '../infra/until.ts';
import { load, post, untilAccepted } from './client.ts';
import { expectHonestAnswers } from './honest-answers.ts';
import { Ledger } from './ledger.ts';
import { openOnStack } from './on-stack.ts';
import { deadlineMs, type PipelineRole, type Ways } from './pipeline.ts';
import { isDoneNote, says } from './protocol.ts';

vi.setConfig({ testTimeout: 300_000 });

interface Stall {
  readonly name: string;
  readonly role: PipelineRole;
  readonly way: keyof Ways;
  /** Longer than the limits that are named. */
  readonly stallMs: number;
}

const limits = { RUNLAKE_PUBLISH_TIMEOUT_MS: '2000', RUNLAKE_QUERY_TIMEOUT_MS: '3000' };

const stalls: readonly Stall[] = [
  { name: 'api and Kafka, longer than a publish may take', role: 'api', way: 'kafka', stallMs: 8_000 },
  { name: 'api and Postgres, longer than a query may take', role: 'api', way: 'postgres', stallMs: 8_000 },
  { name: 'sink and Kafka, longer than a session and a request', role: 'ingest', way: 'kafka', stallMs: 22_000 },
  { name: 'sink and ClickHouse, longer than an insert may take', role: 'ingest', way: 'clickhouse', stallMs: 12_000 },
  { name: 'sink and Postgres, longer than a query may take', role: 'ingest', way: 'postgres', stallMs: 12_000 },
];

/** Each on a connection that stays open and tells nothing more, while others to the same server work. */
const lostAnswers: readonly {
  readonly name: string;
  readonly way: keyof Ways;
  readonly recognises: (message: Buffer) => boolean;
}[] = [
  { name: 'a commit of the sink', way: 'kafka', recognises: isDoneNote },
  { name: 'an insert of the sink', way: 'clickhouse', recognises: says(/INSERT INTO runs /) },
  { name: 'a note of hours', way: 'postgres', recognises: says(/INSERT INTO usage_notes/) },
];
/** The longest limit on a request is 15 s, and a group may wait as long for a member that it took for dead. */
const recoveredWithinMs = 75_000;

describe.runIf(stackPart('kafka') && stackPart('registry'))('the network stalls', () => {
  test.concurrent.each(stalls)('stalled between $name', async ({ role, way, stallMs }) => {
    const { pipeline, close } = await openOnStack(limits);
    try {
      const ledger = new Ledger();
      const loading = load(pipeline, ledger, { senders: 2, batch: 5, pauseMs: 100 });
      await until('runs to be accepted', () => ledger.acceptedCount >= 50, deadlineMs);
      const stalled = pipeline.ways[role][way];
      stalled.stall(true);
      const before = loading.answers.length;
      await pause(stallMs);
      // Nobody waits for ever: answers come meanwhile, whatever they say.
      expect(loading.answers.length).toBeGreaterThan(before);
      const then = ledger.acceptedCount;
      stalled.stall(false);
      await until('runs to be accepted again', () => ledger.acceptedCount >= then + 50, deadlineMs);
      await loading.stop();
      expectHonestAnswers(loading.answers, 15_000);
      // Of a sink the API knows nothing: it goes on.
      if (role === 'ingest') expect(loading.answers.every((answer) => answer?.status === 202)).toBe(true);
      else expect(loading.answers.some((answer) => answer?.status === 503)).toBe(true);
      expect(await ledger.check(pipeline)).toBeGreaterThan(0);
      expect(pipeline.process(role).output()).not.toMatch(/unhandled|uncaught/i);
    } finally {
      await close();
    }
  });

  test.concurrent.each(lostAnswers)('the answer to $name never comes', async ({ way, recognises }) => {
    const { pipeline, close } = await openOnStack(limits);
    try {
      const ledger = new Ledger();
      const runs = Array.from({ length: 20 }, () => ledger.newRun());
      const lost = pipeline.ways.ingest[way].hold('sent', recognises);
      await untilAccepted(() => post(pipeline, runs));
      await lost;
      const lostAtMs = performance.now();
      const more = Array.from({ length: 20 }, () => ledger.newRun());
      await untilAccepted(() => post(pipeline, more));
      await ledger.check(pipeline);
      expect(performance.now() - lostAtMs).toBeLessThan(recoveredWithinMs);
    } finally {
      await close();
    }
  });
});
