import type { FastifyRequest } from 'fastify';
import { expect, it } from 'vitest';
import {
  formatThreadEventId,
  readRunStartPosition,
  readThreadStartPosition,
} from '../../../../api/agent-server/streaming/sse.ts';
import { endSeq, toThreadSeq } from '../../../../pipelines/agents/streams/stream-types.ts';

const request = (id?: string) => ({ headers: { ...(id !== undefined && { 'last-event-id': id }) } }) as FastifyRequest;

it('accepts every id of thread events, also after half a million runs', () => {
  for (const threadSeq of [1, toThreadSeq(1, 1), toThreadSeq(250_000, 7), toThreadSeq(500_000, endSeq)]) {
    expect(readThreadStartPosition(request(String(threadSeq)), {})).toEqual({ threadSeq });
  }
  const id = formatThreadEventId(toThreadSeq(500_000, 7), [499_998, 499_999, 500_000]);
  expect(readThreadStartPosition(request(id), {})).toEqual({
    threadSeq: toThreadSeq(500_000, 7),
    openStarts: [499_998, 499_999],
  });
});

it('reads the query if there is no header, and starts now without either', () => {
  expect(readThreadStartPosition(request(), { last_event_id: '5' })).toEqual({ threadSeq: 5 });
  expect(readThreadStartPosition(request('6'), { last_event_id: '5' })).toEqual({ threadSeq: 6 });
  expect(readRunStartPosition(request(), { last_event_id: '1-2' })).toEqual({ attempt: 1, seq: 2 });
  expect([readThreadStartPosition(request(), {}), readRunStartPosition(request(' '), {})]).toEqual(['now', 'now']);
  for (const id of ['-', '-1'])
    expect([readRunStartPosition(request(id), {}), readThreadStartPosition(request(id), {})]).toEqual([
      'start',
      'start',
    ]);
});

it.each(['x', '1.5', '-2', '9007199254740993', '1e3', '12345678901234567', '0x1', '1-', '1-x', '1-5'])(
  '%s is not a valid id of a thread event',
  (id) => {
    expect(() => readThreadStartPosition(request(id), {})).toThrow(
      expect.objectContaining({ code: 'INVALID_REQUEST' }),
    );
  },
);

it.each(['1', '1-', '-1-1', '1-2-3', 'a-1', '9999999999-1'])('%s is not a valid id of a run event', (id) => {
  expect(() => readRunStartPosition(request(id), {})).toThrow(expect.objectContaining({ code: 'INVALID_REQUEST' }));
});
