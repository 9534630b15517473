import { execFileSync, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { buildPage } from '../../../api/tools/pages.ts';
import { parseWithPythonNumbers } from '../../../api/tools/python-numbers.ts';
import fc from '../../house/fast-check.ts';
import { skipWithout } from '../../house/prerequisites.ts';
import { seed } from '../../house/seed.ts';

const script = fileURLToPath(new URL('reference_pages.py', import.meta.url));
const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) skipWithout('Python 3 is needed for the second implementation of pages');

type Case = [itemsName: string, items: unknown[], pageNumber: number, maxChars: number, previewChars: number];

/** A number that JSON has in a form of its own, such as `1.0`. */
class NumberText {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** JSON with the text of each {@link NumberText}. */
function writeJson(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map(writeJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  return `{${Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}:${writeJson(member)}`)}}`;
}

/** The pages of the second implementation. */
function buildReference(cases: readonly Case[]): unknown[] {
  const options = {
    input: writeJson(cases),
    maxBuffer: 512 * 1024 ** 2,
    env: { PYTHONIOENCODING: 'utf-8', PATH: process.env.PATH },
  };
  const pages = parseWithPythonNumbers(execFileSync('python3', [script], options).toString());
  return JSON.parse(JSON.stringify(pages)) as unknown[];
}

const words = fc.oneof(
  fc.string({ maxLength: 40 }),
  fc.string({ unit: 'grapheme-composite', maxLength: 60 }),
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc
    .tuple(fc.constantFrom('a', 'é', '€', '😀', '"', '\\', '\n', '\u0001', '\u007f', '\u2028'), fc.nat(400))
    .map(([each, count]) => each.repeat(count)),
);
const numbers = fc.oneof(
  fc.integer(),
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom(0.0001, 0.00001, 1e-7, 1.5e-10, 1e21, 2 ** 53, 123.456),
  fc
    .oneof(
      fc.constantFrom('1.0', '0.0', '-0.0', '-0', '2.50', '1e2', '1E+2', '5e-324', '1.5e300', '1e16', '123e20', '0e0'),
      fc.tuple(fc.integer(), fc.nat(4)).map(([value, zeros]) => `${value}.${'0'.repeat(zeros + 1)}`),
      fc.tuple(fc.integer(), fc.integer({ min: -30, max: 30 })).map(([value, exponent]) => `${value}e${exponent}`),
      fc.bigInt({ min: -(10n ** 30n), max: 10n ** 30n }).map(String),
    )
    .map((text) => new NumberText(text)),
);
const { item } = fc.letrec<{ item: unknown }>((tie) => ({
  item: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    words,
    numbers,
    fc.constantFrom(null, true, false),
    fc.array(tie('item'), { maxLength: 6 }),
    fc.dictionary(words, tie('item'), { maxKeys: 6 }),
  ),
}));
const aCase: fc.Arbitrary<Case> = fc.tuple(
  fc.constantFrom('runs', 'result'),
  fc.array(fc.oneof(item, fc.dictionary(fc.string({ maxLength: 10 }), words, { minKeys: 3, maxKeys: 12 })), {
    maxLength: 20,
  }),
  fc.oneof({ weight: 5, arbitrary: fc.constant(1) }, fc.integer({ min: -1, max: 9 })),
  fc.oneof(fc.integer({ min: 1, max: 1_500 }), fc.integer({ min: 1, max: 40_000 })),
  fc.oneof(fc.constant(0), fc.constant(150), fc.integer({ min: 1, max: 300 })),
);

function checkCases(cases: readonly Case[]): void {
  const expected = buildReference(cases);
  for (const [index, each] of cases.entries()) {
    const [name, items, pageNumber, maxCharsPerPage, previewChars] = each;
    const read = parseWithPythonNumbers(writeJson(items)) as unknown[];
    const page = buildPage(name, read, { pageNumber, maxCharsPerPage, previewChars });
    // Through JSON, as the client receives it: -0 becomes 0, and large integers are texts.
    expect(JSON.parse(JSON.stringify(page)), writeJson(each).slice(0, 2_000)).toEqual(expected[index]);
  }
}

describe.runIf(hasPython)('a page', () => {
  it('is that of a second implementation, for generated records', () => {
    const cases = fc.sample(aCase, { numRuns: 1_500, seed });
    const whole = cases.filter((each) => writeJson(each).length < 200_000);
    expect(whole.length).toBeGreaterThan(1_000);
    try {
      checkCases(whole);
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  });

  it('is that of a second implementation at each boundary', () => {
    const item = { id: 'ü', text: 'x'.repeat(300), emoji: '😀'.repeat(200) };
    const sizes = [...Array(200).keys()].map((step) => 60 + step * 7);
    checkCases(sizes.map((max) => ['runs', [item, item, { nested: [item] }], 1, max, 0]));
    checkCases(sizes.map((max) => ['runs', [item, item, { nested: [item] }], 2, max * 2, 150]));
  });

  it('without strings to cut has a preview', () => {
    checkCases([
      ['runs', [Array.from({ length: 9_000 }, (_, index) => index)], 1, 1_000, 150],
      ['runs', [Array.from({ length: 9_000 }, () => 'é"\n')], 1, 30_000, 150],
      ['result', [{}], 1, 1, 0],
    ]);
  });

  it('of large records is fast', () => {
    const run = { inputs: { text: 'long text '.repeat(200_000) }, outputs: { text: '😀'.repeat(500_000) } };
    const startedAt = performance.now();
    const page = buildPage('runs', [run, run, run], { pageNumber: 2, maxCharsPerPage: 30_000, previewChars: 0 });
    expect(performance.now() - startedAt).toBeLessThan(3_000);
    expect(page).toMatchObject({ page_number: 2, total_pages: 3 });
  });
});
