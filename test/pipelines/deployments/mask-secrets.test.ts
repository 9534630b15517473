import { expect, it } from 'vitest';
import { createMask } from '../../../pipelines/deployments/mask-secrets.ts';

const manyLines = Array.from({ length: 12_400 }, (_, index) => index.toString(36).padStart(6, 'q')).join('\n');
const longerAndLonger = Array.from({ length: 440 }, (_, index) => `${'a'.repeat(index + 6)}b`).join('\n');

it.each([
  ['many lines', manyLines, 'qqq '.repeat(4_000)],
  ['many lines that begin alike', longerAndLonger, 'a'.repeat(16_000)],
])('does not block the process with a secret of %s', (_what, secret, line) => {
  const mask = createMask([secret]);
  const startMs = performance.now();
  for (let count = 0; count < 5; count += 1) expect(mask(line)).toBe(line);
  expect(performance.now() - startMs).toBeLessThan(1_000);
  expect(mask(`a ${secret} b`.slice(0, 10_000))).toMatch(/^a \*\*\*/);
});

it.each([
  ['secrets that overlap', 'begin abcdefghi end', 'begin *** end'],
  ['the longest of those that begin alike', 'key=abcdefgh-long end', 'key=*** end'],
  ['one of those that begin alike', 'key:abcdefgh-lo end', 'key:***-lo end'],
  ['a secret in which a line was cut', 'begin abcdefgh-lo…', 'begin ***…'],
  ['none that only begins there', 'begin abcdefgh-lo', 'begin ***-lo'],
])('masks %s', (_what, line, masked) => {
  expect(createMask(['abcdef', 'defghi', 'abcdefgh', 'abcdefgh-long'])(line)).toBe(masked);
});

it('leaves what only resembles a secret', () => {
  const mask = createMask(['{\n  "a": 1\n}', 'four']);
  expect(mask('function () { return 1; } // four')).toBe('function () { return 1; } // four');
});
