import { expect, test } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import type { LogMessage } from '../../../../infra/event-log/event-log.ts';
import { createStreamPublisher } from '../../../../pipelines/agents/streams/create-stream-publisher.ts';
import { decodeStreamRecord } from '../../../../pipelines/agents/streams/ring-buffer.ts';
import { until } from '../../../infra/until.ts';
import { chunk, makeRunEnd, newRun } from './streams-under-test.ts';

interface PublishCall {
  readonly messages: readonly LogMessage[];
  place(): void;
  done(): void;
  fail(error: unknown): void;
}

/** Opens a log whose results the test controls. */
function openManualLog() {
  const calls: PublishCall[] = [];
  return {
    calls,
    log: {
      schemaId: () => 4,
      publish: (_: unknown, messages: readonly LogMessage[], onPlaced: () => void = () => {}) =>
        new Promise<void>((done, fail) => {
          calls.push({ messages, place: onPlaced, done, fail });
        }),
    },
  };
}

const listSeqs = ({ messages }: PublishCall) => messages.map(({ value }) => decodeStreamRecord(value)?.seq);
const unavailable = () => runlakeError('EVENT_LOG_UNAVAILABLE');

test('chunks gather until the previous batch is placed, and do not wait for it to be durable', async () => {
  const { calls, log } = openManualLog();
  const writer = createStreamPublisher({ log, retentionMs: 1_000 }).open(newRun());
  for (let turn = 0; turn < 3; turn++) await writer.write([chunk('a'), chunk('b')]);
  expect(calls.map(listSeqs)).toEqual([[1, 2]]);
  calls[0]?.place();
  await until('the next batch', () => calls.length === 2);
  expect(listSeqs(calls[1] as PublishCall)).toEqual([3, 4, 5, 6]);
  let settled = false;
  const settling = writer.settled().then(() => {
    settled = true;
  });
  calls[1]?.done();
  await new Promise((resolve) => setImmediate(resolve));
  expect(settled).toBe(false);
  calls[0]?.done();
  await settling;
});

test('a writer waits while the in-flight bytes exceed the limit', async () => {
  const { calls, log } = openManualLog();
  const writer = createStreamPublisher({ log, retentionMs: 1_000, maxBytesInFlight: 2_000 }).open(newRun());
  await writer.write([chunk('a', 500)]);
  let isWritten = false;
  const waiting = writer.write([chunk('b', 1_500)]).then(() => {
    isWritten = true;
  });
  await until('the first batch', () => calls.length === 1);
  expect(isWritten).toBe(false);
  calls[0]?.place();
  calls[0]?.done();
  await waiting;
});

test('retries the same batch on a temporary log failure; a permanent failure surfaces in settled', async () => {
  const { calls, log } = openManualLog();
  const writer = createStreamPublisher({ log, retentionMs: 1_000, retryTimeoutMs: 400 }).open(newRun());
  await writer.write([chunk('a')]);
  calls[0]?.fail(unavailable());
  await until('a retry', () => calls.length === 2);
  expect(calls[1]?.messages).toEqual(calls[0]?.messages);
  calls[1]?.done();
  await writer.settled();
  await writer.write([chunk('b')]);
  await writer.write([chunk('c')]);
  for (let call = 2; call < 10 && call <= calls.length; call++) {
    calls[call]?.fail(unavailable());
    await Promise.race([
      until('a retry', () => calls.length > call + 1, 2_000).catch(() => {}),
      writer.settled().catch(() => {}),
    ]);
  }
  await expect(writer.settled()).rejects.toMatchObject({ code: 'EVENT_LOG_UNAVAILABLE' });
  const tries = calls.length;
  // No batch is sent after a missing one.
  await writer.write([chunk('d')]);
  expect(calls).toHaveLength(tries);
  expect(calls.flatMap(listSeqs)).not.toContain(3);
});

test('resends a failed batch and all batches placed after it, in order, once they have completed', async () => {
  const { calls, log } = openManualLog();
  const writer = createStreamPublisher({ log, retentionMs: 1_000 }).open(newRun());
  for (const [index, text] of ['a', 'b', 'c'].entries()) {
    await writer.write([chunk(text)]);
    await until('the batch', () => calls.length === index + 1);
    calls[index]?.place();
  }
  calls[1]?.fail(unavailable());
  calls[0]?.done();
  await new Promise((resolve) => setImmediate(resolve));
  await writer.write([chunk('d')]);
  expect(calls).toHaveLength(3);
  calls[2]?.done();
  for (const index of [3, 4, 5]) {
    await until('the next batch', () => calls.length === index + 1);
    calls[index]?.place();
  }
  expect(calls.slice(3).map(listSeqs)).toEqual([[2], [3], [4]]);
  let settled = false;
  const settling = writer.settled().then(() => {
    settled = true;
  });
  for (const index of [5, 4]) calls[index]?.done();
  await new Promise((resolve) => setImmediate(resolve));
  expect(settled).toBe(false);
  calls[3]?.done();
  await settling;
});

test('publishes an end with identical bytes each time, after every event; replaces an oversized event with a warning', async () => {
  const { calls, log } = openManualLog();
  const publisher = createStreamPublisher({ log, retentionMs: 1_000, maxEventBytes: 500 });
  const run = newRun({ attempt: 2, threadStart: 5 });
  const writer = publisher.open(run);
  await writer.write([chunk('large', 1_000), chunk('small')]);
  const [large, small] = (calls[0] as PublishCall).messages.map(({ value }) => decodeStreamRecord(value));
  expect(large).toMatchObject({ seq: 1, event: 'warning', mode: 'warning' });
  expect(JSON.parse(Buffer.from(large?.data ?? []).toString())).toMatchObject({ error: 'EventTooLarge' });
  expect(small).toMatchObject({ seq: 2, event: 'custom', threadSeq: 5 * 2 ** 32 + 2 });
  const values = {
    ...makeRunEnd(run),
    data: Buffer.from(JSON.stringify({ status: 'success', values: 'x'.repeat(600) })),
  };
  for (let time = 0; time < 2; time++) void publisher.publishEnd(values);
  const [first, second] = calls.slice(1);
  expect(second?.messages).toEqual(first?.messages);
  const end = decodeStreamRecord(first?.messages[0]?.value as Buffer);
  expect(end).toMatchObject({ attempt: 2, seq: 2 ** 32 - 1, threadSeq: 6 * 2 ** 32 - 1, isEnd: true });
  expect(Buffer.from(end?.data ?? []).toString()).toBe('{"status":"success"}');
});
