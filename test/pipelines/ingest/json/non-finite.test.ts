import { expect, test } from 'vitest';
import { isRunlakeError, runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { readWithNonFinite } from '../../../../pipelines/ingest/json/non-finite.ts';
import { scanValue } from '../../../../pipelines/ingest/json/scan.ts';
import fc from '../../../house/fast-check.ts';

/** Reads a text as JSON in the way of ingest; returns the JSON that was accepted. */
function read(text: string, reserve?: (bytes: number) => void): string {
  const scan = (bytes: Buffer) => {
    const { start, end } = scanValue(bytes, 0, bytes.length, { part: 'the text', maxDepth: 64 });
    return bytes.toString('utf8', start, end);
  };
  return readWithNonFinite(Buffer.from(text), scan, reserve);
}

test.each([
  ['NaN', 'null'],
  ['[NaN,Infinity, -Infinity]', '[null,null, null]'],
  ['{"a": NaN, "NaN": "NaN, -Infinity", "\\"": NaN}', '{"a": null, "NaN": "NaN, -Infinity", "\\"": null}'],
  ['[NaN,NaN,NaN,NaN,NaN,NaN,NaN]', '[null,null,null,null,null,null,null]'],
  ['"NaN"', '"NaN"'],
])('%s is read as %s', (text, json) => {
  expect(read(text)).toBe(json);
});

test.each([
  ...['nan', 'NaNs', '-NaN', '+Infinity', '[NaN', '{"a": "NaN}', '"NaN', '{NaN: 1}', '--Infinity', '1NaN', '[NaN, -'],
  ...['"NaN\\', `"NaN\\"`, `"NaN${'x'.repeat(100)}\\`, `"NaN${'x'.repeat(100)}\\"`],
])('%s is refused', (text) => {
  expect(() => read(text)).toThrow(/Invalid JSON/);
});

test('valid JSON is not copied', () => {
  const bytes = Buffer.from('["NaN"]');
  expect(readWithNonFinite(bytes, (given) => given)).toBe(bytes);
});

test('memory for the copy is reserved, and only for texts that may need one', () => {
  const reserved: number[] = [];
  expect(() => read('[x]', (bytes) => reserved.push(bytes))).toThrow(/Invalid JSON/);
  expect(read('[NaN]', (bytes) => reserved.push(bytes))).toBe('[null]');
  expect(reserved).toEqual([7]);
});

test('errors of another kind are not hidden', () => {
  const failure = runlakeError('TOO_MANY_PARTS', { limitParts: 1, limit: 'NaN' });
  const fail = () => {
    throw failure;
  };
  expect(() => readWithNonFinite(Buffer.from('NaN'), fail)).toThrow(failure);
});

test('the error names a byte of the text that was sent', () => {
  expect(() => read('[NaN, -Infinity, x]')).toThrow(/Invalid JSON in the text at byte 1:/);
});

test('any text is read or refused', () => {
  const part = fc.constantFrom('NaN', 'Infinity', '-', '"', '\\', '{', '}', '[', ']', ':', ',', ' ', '1', 'a');
  fc.assert(
    fc.property(fc.array(part, { maxLength: 20 }), (parts) => {
      try {
        JSON.parse(read(parts.join('')));
      } catch (error) {
        expect(isRunlakeError(error)).toBe(true);
      }
    }),
  );
});
