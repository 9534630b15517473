import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { readTable, type TableFormat } from '../../../../pipelines/datasets/files/read-table.ts';

const limits = { maxRowBytes: 26_214_400, maxJsonDepth: 1_000 };

/** Reads a file, and returns the number of its rows and the longest time in which the event loop could not run. */
async function read(format: TableFormat, file: string | Buffer, columns: readonly string[] = ['a']) {
  let [rows, maxGapMs, last] = [0, 0, performance.now()];
  const measure = () => {
    const now = performance.now();
    [maxGapMs, last] = [Math.max(maxGapMs, now - last), now];
  };
  const timer = setInterval(measure, 5);
  try {
    // The check that the file is UTF-8 is one step, and so is this allocation.
    const content = Buffer.from(file as string);
    await sleep(10);
    for await (const _ of readTable(format, content, columns, limits)) rows++;
    measure();
  } finally {
    clearInterval(timer);
  }
  return { rows, maxGapMs };
}

describe('other requests are served while a file is read', () => {
  it.each([
    ['jsonl', 'empty lines', '\n'.repeat(20_000_000), 0],
    ['jsonl', 'lines with spaces', ' \n'.repeat(4_000_000), 0],
    ['jsonl', 'short rows', '{}\n'.repeat(500_000), 500_000],
    ['csv', 'short rows', `a\n${'b\n'.repeat(500_000)}`, 500_000],
    ['csv', 'empty lines', `a\n${'\n'.repeat(5_000_000)}`, 0],
    ['csv', 'an open quote', `a\n"${'""'.repeat(3_000_000)}"`, 1],
  ] as const)('%s of %s', { timeout: 120_000 }, async (format, _, file, rows) => {
    const result = await read(format, file);
    expect(result.rows).toBe(rows);
    expect(result.maxGapMs).toBeLessThan(500);
  });
});

describe('number of CSV columns', () => {
  it('accepts 10,000', async () => {
    expect((await read('csv', `${','.repeat(9_999)}a\n${','.repeat(9_999)}1\n`)).rows).toBe(1);
  });

  it.each([10_000, 4_000_000])('refuses %i and one', { timeout: 60_000 }, async (commas) => {
    await expect(read('csv', `${','.repeat(commas)}a\n`)).rejects.toMatchObject({
      code: 'INVALID_FILE',
      message: expect.stringContaining('10000 columns'),
    });
  });

  // The open quotes show that the row was not read to its end.
  it.each([
    ['line feeds', `a,b\n\n1,2\n${','.repeat(20_000)}"`],
    ['carriage returns and line feeds', `a,b\r\n\r\n1,2\r\n${',\n'.repeat(20_000)}"`],
    ['carriage returns', `a,b\r1,"2\r"\r${',\n'.repeat(20_000)}"`],
  ])('refuses them before they are read, after rows that end in %s', async (_, file) => {
    await expect(read('csv', file)).rejects.toMatchObject({
      code: 'INVALID_FILE',
      message: 'Row 3 of the file: it has more than 10000 columns.',
    });
  });

  it.each(['\n', '\r\n', '\r'])('does not count commas in quotes, and those of other rows (%j)', async (end) => {
    const row = `"${','.repeat(20_000)}""${end}",${','.repeat(5_000)}${end}`;
    expect((await read('csv', `a,${','.repeat(5_000)}${end}${row.repeat(4)}`)).rows).toBe(4);
  });
});

it('counts empty lines in the numbers of JSONL rows', async () => {
  await expect(read('jsonl', '\n \r\n{"a":1}\n\n[]\n')).rejects.toMatchObject({
    code: 'INVALID_FILE',
    message: expect.stringContaining('5'),
  });
});
