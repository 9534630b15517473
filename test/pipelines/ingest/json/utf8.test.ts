import { isUtf8 } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { scanValue } from '../../../../pipelines/ingest/json/scan.ts';
import { findInvalidUtf8 } from '../../../../pipelines/ingest/json/scan-input.ts';
import fc from '../../../house/fast-check.ts';

describe('invalid UTF-8', () => {
  it.each<[string, number[], number]>([
    ['a continuation byte first', [0x80], 0],
    ['a continuation byte after text', [0x61, 0xbf], 1],
    ['a lead byte last', [0x61, 0xc3], 1],
    ['two bytes of three at the end', [0x61, 0xe2, 0x82], 1],
    ['three bytes of four at the end', [0xf0, 0x9f, 0x98], 0],
    ['an overlong slash', [0xc0, 0xaf], 0],
    ['an overlong form of three bytes', [0xe0, 0x9f, 0xbf], 0],
    ['an overlong form of four bytes', [0xf0, 0x8f, 0xbf, 0xbf], 0],
    ['an encoded high surrogate', [0x61, 0xed, 0xa0, 0x80], 1],
    ['an encoded low surrogate', [0xed, 0xbf, 0xbf], 0],
    ['a code point above the last', [0xf4, 0x90, 0x80, 0x80], 0],
    ['a byte that never occurs', [0xc3, 0xa9, 0xff], 2],
    ['a lead byte cut short by text', [0xc3, 0x61], 0],
    ['a third byte that does not continue', [0x61, 0x61, 0xe2, 0x82, 0x61], 2],
  ])('finds %s', (_, bytes, offset) => {
    expect(isUtf8(Buffer.from(bytes))).toBe(false);
    const padded = Buffer.from([0xff, ...bytes, 0xff]);
    expect(findInvalidUtf8(padded, 1, 1 + bytes.length)).toBe(1 + offset);
    const part = Buffer.concat([Buffer.from('xx"'), Buffer.from(bytes), Buffer.from('"')]);
    expect(() => scanValue(part, 2, part.length, { part: 'patch.2', maxDepth: 5 })).toThrow(
      `Invalid UTF-8 in patch.2 at byte ${offset + 1}.`,
    );
  });

  it('reports the position at which isUtf8 stops accepting the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.uint8Array({ maxLength: 6 }), (text, tail) => {
        const bytes = Buffer.concat([Buffer.from(text), tail]);
        const offset = findInvalidUtf8(bytes, 0, bytes.length);
        expect(offset === bytes.length).toBe(isUtf8(bytes));
        expect(isUtf8(bytes.subarray(0, offset))).toBe(true);
      }),
      { numRuns: 2_000 },
    );
  });
});
