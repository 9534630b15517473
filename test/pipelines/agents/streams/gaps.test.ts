import { describe, expect, test } from 'vitest';
import type { EventLog } from '../../../../infra/event-log/event-log.ts';
import type { RunStreamStart, StreamReader } from '../../../../pipelines/agents/streams/stream-types.ts';
import { forSuite } from '../../../for-suite.ts';
import { until } from '../../../infra/until.ts';
import { chunk, idOf, iterateReader, makeRunEnd, newRun, openStreams } from './streams-under-test.ts';

/**
 * A process leaves a gap if it is killed after the log lost a placed batch, and before it sends the batch again. The
 * store timeout of readers exceeds the test timeout here: the tests pass only if readers do not wait for a final gap.
 */

const under = forSuite(() => openStreams());

const openHub = () => under.hub({ storeTimeoutMs: 600_000 });

/** Returns a log that loses the calls selected by `isLost`; their process dies before it knows of the loss. */
function losing(isLost: (call: number) => boolean): Pick<EventLog, 'publish' | 'schemaId'> {
  let call = 0;
  return {
    schemaId: (topic) => under.log.schemaId(topic),
    publish(topic, messages, onPlaced) {
      if (!isLost(++call)) return under.log.publish(topic, messages, onPlaced);
      onPlaced?.();
      return new Promise(() => {});
    },
  };
}

/** Writes each list of texts as a batch, and then stops; the log loses some of the batches. */
async function writeAndDie(run: RunStreamStart, batches: readonly string[][], lost: readonly number[]): Promise<void> {
  const writer = under.publisher({ log: losing((call) => lost.includes(call)) }).open(run);
  for (const batch of batches) {
    await writer.write(batch.map((text) => chunk(text)));
    // Without this pause, the next chunks would join the same batch.
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function writeToEnd(run: RunStreamStart, texts: readonly string[]): Promise<void> {
  const publisher = under.publisher();
  const writer = publisher.open(run);
  await writer.write(texts.map((text) => chunk(text)));
  await writer.settled();
  await publisher.publishEnd(makeRunEnd(run));
}

/** Collects the events of a reader in the background, up to its end or its error. */
function reading(reader: StreamReader) {
  const ids: string[] = [];
  const ended = (async () => {
    for await (const event of iterateReader(reader)) ids.push(idOf(event));
    return 'end';
  })().catch((error: { code?: string }) => error.code);
  return { ids, ended, close: () => reader.close() };
}

describe.each([true, false])('a gap in an attempt (kept: %s)', (kept) => {
  test('is skipped when another attempt follows: readers get the events before the gap, then that attempt', async () => {
    const run = newRun({ kept });
    const hub = await openHub();
    const live = [await hub.readRun(run, 'now'), await hub.readRun(run, 'start')].map(reading);
    const threadReaders = [await hub.readThread(run, 'now'), await hub.readThread(run, 'start')].map(reading);
    await writeAndDie(run, [['a'], ['b', 'c'], ['d'], ['e']], [2]);
    await until('the first event', () => [...live, ...threadReaders].every(({ ids }) => ids.length > 0));
    await writeToEnd({ ...run, attempt: 2, threadStart: 2 }, ['f', 'g']);
    const expected = ['1-1', '2-1', '2-2', '2-end'];
    for (const { ids, ended } of live) expect([await ended, ids]).toEqual(['end', expected]);
    for (const { ids } of threadReaders) {
      await until('the end', () => ids.includes('2-end'));
      expect(ids).toEqual(expected);
    }
    if (!kept) return;
    // Read in this process, and in another process that has only the stored events.
    for (const at of [hub, await openHub()]) {
      const back = [await at.readRun(run, 'start'), await at.readRun(run, { attempt: 1, seq: 1 })].map(reading);
      expect(await Promise.all(back.map(({ ended }) => ended))).toEqual(['end', 'end']);
      expect(back.map(({ ids }) => ids)).toEqual([expected, expected.slice(1)]);
      const threads = [await at.readThread(run, 'start'), await at.readThread(run, { threadSeq: 2 ** 32 + 1 })];
      const threadReadings = threads.map(reading);
      await Promise.all(threads.map((reader) => reader.finish()));
      expect(await Promise.all(threadReadings.map(({ ended }) => ended))).toEqual(['end', 'end']);
      expect(threadReadings.map(({ ids }) => ids)).toEqual([expected, expected.slice(1)]);
      // A reader that has already seen events after the gap also continues with the next attempt.
      const behind = reading(await at.readRun(run, { attempt: 1, seq: 5 }));
      expect([await behind.ended, behind.ids]).toEqual(['end', expected.slice(1)]);
    }
  });

  test('is reported if the run ended with it, also before later runs of the thread', async () => {
    const run = newRun({ kept });
    const next = newRun({ threadId: run.threadId, kept, threadStart: 2 });
    const hub = await openHub();
    const live = reading(await hub.readRun(run, 'now'));
    const inThread = reading(await hub.readThread(run, 'now'));
    await writeAndDie(run, [['a'], ['b'], ['c']], [2]);
    await under.publisher().publishEnd(makeRunEnd(run, 'error'));
    await writeToEnd(next, ['d']);
    for (const { ids, ended } of [live, inThread]) expect([await ended, ids]).toEqual(['STREAM_INCOMPLETE', ['1-1']]);
    if (!kept) return;
    for (const at of [hub, await openHub()]) {
      const back = [await at.readRun(run, 'start'), await at.readThread(run, 'start')].map(reading);
      for (const { ids, ended } of back) expect([await ended, ids]).toEqual(['STREAM_INCOMPLETE', ['1-1']]);
    }
  });

  test('that the same process fills delays live readers until then', async () => {
    const run = newRun({ kept });
    const hub = await openHub();
    const readers = [reading(await hub.readRun(run, 'now')), reading(await hub.readThread(run, 'now'))];
    await writeAndDie(run, [['a'], ['b'], ['c']], [2]);
    await until('the first event', () => readers.every(({ ids }) => ids.length > 0));
    // Send the lost batch again, and all batches after it.
    await writeToEnd(run, ['a', 'b', 'c']);
    for (const { ids } of readers) {
      await until('the end', () => ids.includes('1-end'));
      expect(ids).toEqual(['1-1', '1-2', '1-3', '1-end']);
    }
  });
});

test('skips two attempts with gaps, also at the beginning, one after the other', async () => {
  const run = newRun();
  const hub = await openHub();
  const live = reading(await hub.readRun(run, 'now'));
  await writeAndDie(run, [['a'], ['b'], ['c']], [2]);
  await writeAndDie({ ...run, attempt: 2, threadStart: 2 }, [['d'], ['e'], ['f']], [1]);
  await writeToEnd({ ...run, attempt: 3, threadStart: 3 }, ['g']);
  const later = reading(await (await openHub()).readRun(run, 'start'));
  for (const { ids, ended } of [live, later]) expect([await ended, ids]).toEqual(['end', ['1-1', '3-1', '3-end']]);
});
