import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { runEvents } from '../../../../schemas/topics.ts';
import { measureLongestTurn } from '../../../infra/longest-turn.ts';
import { runEvent } from '../../runs/run-events.ts';
import { openDrivenSink, toRecordsAtOffset } from './driven-sink.ts';
import { toLogMessage } from './sink-under-test.ts';

it('a batch of many events lets other work of the process run in between', async () => {
  const sink = await openDrivenSink();
  const micros = Date.now() * 1_000;
  const inputs = Buffer.from(JSON.stringify({ text: 'x'.repeat(3_000) }));
  const addEvent = () => {
    const event = { traceId: randomUUID(), runId: randomUUID(), startTimeMicros: micros, traceTimeMicros: micros };
    return toLogMessage(runEvent({ ...event, values: { name: 'run', inputs } }));
  };
  const records = toRecordsAtOffset(1, Array.from({ length: 15_000 }, addEvent));
  const longest = await measureLongestTurn(sink.deliver(runEvents, records));
  await sink.close();
  expect(longest).toBeLessThan(0.3);
});
