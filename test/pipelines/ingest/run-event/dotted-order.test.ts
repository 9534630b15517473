import { describe, expect, it } from 'vitest';
import { formatDottedOrderSegment, parseDottedOrder } from '../../../../pipelines/ingest/run-event/dotted-order.ts';

const ids = [
  '0192f0c1-2345-7abc-8def-000000000001',
  '0192f0c1-2345-7abc-8def-000000000002',
  '0192f0c1-2345-7abc-8def-00000000000c',
] as const;
const startMicros = Date.UTC(2026, 1, 28, 12, 30, 45) * 1_000 + 123_456;
const [root, child, leaf] = ids.map((id, index) => formatDottedOrderSegment(startMicros + index, id)) as [
  string,
  string,
  string,
];

it('formats a segment', () => {
  expect(root).toBe(`20260228T123045123456Z${ids[0]}`);
  expect(formatDottedOrderSegment(1, ids[0])).toBe(`19700101T000000000001Z${ids[0]}`);
});

describe('parseDottedOrder', () => {
  it('parses a root', () => {
    expect(parseDottedOrder(root)).toEqual({
      text: root,
      runId: ids[0],
      traceId: ids[0],
      parentId: undefined,
      runTimeMicros: startMicros,
      traceTimeMicros: startMicros,
    });
  });

  it('parses a child of a child, with ids in lower case', () => {
    const text = `${root}.${child}.${leaf}`;
    const expected = {
      text,
      runId: ids[2],
      traceId: ids[0],
      parentId: ids[1],
      runTimeMicros: startMicros + 2,
      traceTimeMicros: startMicros,
    };
    expect(parseDottedOrder(text)).toEqual(expected);
    expect(parseDottedOrder(text.toUpperCase())).toEqual(expected);
  });

  it('parses 1,000 segments and no more', () => {
    expect(parseDottedOrder(`${`${root}.`.repeat(999)}${leaf}`)).toMatchObject({ runId: ids[2], parentId: ids[0] });
    expect(parseDottedOrder(`${`${root}.`.repeat(1_000)}${leaf}`)).toEqual({ reason: 'has more than 1000 segments' });
    expect(parseDottedOrder('.'.repeat(10_000_000))).toEqual({ reason: 'has more than 1000 segments' });
  });

  const length = (characters: number, segment: number) =>
    `has ${characters} characters in segment ${segment}, where a time YYYYMMDDTHHMMSSffffffZ and a UUID have 58`;
  const noTime = (segment: number) => `has no time YYYYMMDDTHHMMSSffffffZ in segment ${segment}`;
  it.each<[string, string, string]>([
    ['nothing', '', 'is empty'],
    ['an id alone', ids[0], length(36, 1)],
    ['a dot at the end', `${root}.`, length(0, 2)],
    ['a dot at the start', `.${root}`, length(0, 1)],
    ['two dots', `${root}..${leaf}`, length(0, 2)],
    ['another separator', `${root}/${leaf}`, length(117, 1)],
    ['a segment cut short', `${root}.${child.slice(0, -1)}.${leaf}`, length(57, 2)],
    ['milliseconds', `${root}.20260228T123045123Z${ids[1]}`, length(55, 2)],
    ['a space around it', ` ${root}`, length(59, 1)],
    ['a UUID without dashes', root.slice(0, 22) + ids[0].replaceAll('-', ''), length(54, 1)],
    ['no T', root.replace('T', ' '), noTime(1)],
    ['no Z', `${root}.${child.replace('Z', 'z')}`, noTime(2)],
    ['a date that does not exist', `${root}.${leaf.replace('0228', '0230')}`, noTime(2)],
    ['year 0', root.replace('2026', '0000'), noTime(1)],
    ['hour 24', root.replace('T12', 'T24'), noTime(1)],
    ['minute 60', root.replace('T1230', 'T1260'), noTime(1)],
    ['second 60', root.replace('T123045', 'T123060'), noTime(1)],
    ['a letter in the time', root.replace('123456Z', '12345xZ'), noTime(1)],
    ['a UUID with another letter', `${root}.${leaf.replace('abc', 'xyz')}`, 'has no UUID in segment 2'],
    ['dashes elsewhere', root.replace('0192f0c1-', '0192f0c-1'), 'has no UUID in segment 1'],
    ['letters that look like digits', `${root.slice(0, -1)}\u0661`, 'has no UUID in segment 1'],
  ])('reports the error in %s', (_, text, reason) => {
    expect(parseDottedOrder(text)).toEqual({ reason });
  });
});
