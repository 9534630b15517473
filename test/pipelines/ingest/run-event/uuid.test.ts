import { describe, expect, it } from 'vitest';
import { parseUuid, readUuidForm, readUuidTimeMicros } from '../../../../pipelines/ingest/run-event/uuid.ts';

const id = '0192f0c1-2345-7abc-8def-0123456789ab';

describe('parseUuid', () => {
  it.each([
    id,
    id.toUpperCase(),
    '0192F0c1-2345-7Abc-8dEf-0123456789aB',
    id.replaceAll('-', ''),
    id.replaceAll('-', '').toUpperCase(),
  ])('accepts %s', (text) => {
    expect(parseUuid(text)).toBe(id);
  });

  it('accepts every version, and the nil UUID', () => {
    const nil = '00000000-0000-0000-0000-000000000000';
    expect(parseUuid(nil)).toBe(nil);
  });

  it.each([
    '',
    'x',
    `{${id}}`,
    `urn:uuid:${id}`,
    ` ${id.slice(1)}`,
    `${id} `,
    `${id}\n`,
    id.slice(0, -1),
    `${id}0`,
    id.replace('a', 'g'),
    id.replace('b', 'é'),
    id.replace('b', '\u0162'),
    id.replaceAll('-', '_'),
    id.replace('-', ''),
    `0${id.replace('-', '')}`,
    `${id.slice(0, 7)}-1${id.slice(9)}`,
    id.replaceAll('-', '').replace('f', 'x'),
  ])('refuses %j', (text) => {
    expect(parseUuid(text)).toBeUndefined();
  });
});

it('finds a UUID inside a text', () => {
  expect(readUuidForm(`x${id}y`, 1)).toBe('lower');
  expect(readUuidForm(`x${id.toUpperCase()}`, 1)).toBe('capitals');
  expect(readUuidForm(`x${id}`, 0)).toBeUndefined();
  expect(readUuidForm(id, 1)).toBeUndefined();
});

it('reads the time of version 7 only', () => {
  expect(readUuidTimeMicros(id)).toBe(0x0192f0c12345 * 1_000);
  expect(readUuidTimeMicros('0192f0c1-2345-4abc-8def-0123456789ab')).toBeUndefined();
});
