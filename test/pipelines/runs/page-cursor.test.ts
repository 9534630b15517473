import { describe, expect, it } from 'vitest';
import { readCursor, writeCursor } from '../../../pipelines/runs/page-cursor.ts';
import fc from '../../house/fast-check.ts';
import { deriveUuid, noonMicros } from './run-events.ts';

const after = {
  startTimeMicros: noonMicros,
  projectId: deriveUuid('p'),
  traceId: deriveUuid('t'),
  runId: deriveUuid('r'),
};
const cursor = writeCursor({ order: 'desc', after });

describe('a page cursor', () => {
  it('survives encoding and decoding', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('asc' as const, 'desc' as const),
        fc.integer({ min: 0, max: 9e15 }),
        fc.uuid(),
        fc.uuid(),
        fc.uuid(),
        (order, startTimeMicros, projectId, traceId, runId) => {
          const written = { order, after: { startTimeMicros, projectId, traceId, runId } };
          expect(readCursor(writeCursor(written), order)).toEqual(written);
        },
      ),
    );
  });

  const bytes = Buffer.from(cursor, 'base64url');
  const changed = (at: number, byte: number) => {
    const copy = Buffer.from(bytes);
    copy[at] = byte;
    return copy.toString('base64url');
  };
  it.each([
    ['words', 'not a cursor'],
    ['one character less', cursor.slice(0, -1)],
    ['one character more', `${cursor}A`],
    ['padding', `${cursor}==`],
    ['white space', ` ${cursor}`],
    ['another alphabet', Buffer.from(bytes.map(() => 0xff)).toString('base64')],
    ['SQL', "1' OR 1=1 --"],
    ['another version', changed(0, 2)],
    ['an unknown order', changed(1, 2)],
    ['a time before 1970', changed(2, 0xff)],
    ['a time above the storable maximum', changed(2, 0x7f)],
  ])('%s is invalid', (_name, text) => {
    expect(() => readCursor(text, 'desc')).toThrow(expect.objectContaining({ code: 'BAD_REQUEST' }));
  });

  it('of another order is refused', () => {
    expect(() => readCursor(cursor, 'asc')).toThrow(/order/);
  });
});
