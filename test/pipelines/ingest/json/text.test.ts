import { describe, expect, it } from 'vitest';
import { decodeStringBytes, parseRange } from '../../../../pipelines/ingest/json/scan-string.ts';
import fc from '../../../house/fast-check.ts';

describe('the text of a JSON string', () => {
  it.each(['""', '"a"', '"größe"', '"\\u0000\\n\\/"', '"\\ud800"', '"\\ud83d\\ude00"', '"a\\\\"'])(
    'is decoded like %s',
    (json) => {
      const bytes = Buffer.from(`[${json}]`);
      expect(decodeStringBytes(bytes, 1, bytes.length - 1)).toBe(JSON.parse(json));
    },
  );

  it('round-trips any string', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const bytes = Buffer.from(JSON.stringify(text));
        expect(decodeStringBytes(bytes, 0, bytes.length)).toBe(text);
      }),
    );
  });
});

it('parses a range of a text', () => {
  const bytes = Buffer.from('{"usage": {"input_tokens": 3} }');
  expect(parseRange(bytes, 10, 29)).toEqual({ input_tokens: 3 });
});
