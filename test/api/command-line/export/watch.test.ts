import { describe, expect, it } from 'vitest';
import {
  formatFailures,
  formatProgress,
  formatProgressBar,
  formatResult,
  listFailedAttempts,
  openScreen,
} from '../../../../api/command-line/export/watch.ts';
import { formatBytes, formatDuration, formatNumber } from '../../../../api/command-line/format-figures.ts';
import {
  computeCompletedShare,
  type ExportRunWithFiles,
  type ExportWithProgress,
} from '../../../../pipelines/exports/queries.ts';

const id = '00000000-0000-4000-8000-000000000001';
const now = new Date('2026-03-02T00:00:10Z');

const makeExport = (overrides: Partial<ExportWithProgress> = {}): ExportWithProgress => ({
  id,
  workspaceId: id,
  destinationId: id,
  projectId: id,
  startTime: '2026-03-01T00:00:00.000000Z',
  endTime: '2026-03-03T00:00:00.000000Z',
  intervalHours: null,
  format: 'Parquet',
  formatVersion: 'v1',
  compression: 'zstandard',
  exportFields: null,
  filter: null,
  status: 'RUNNING',
  statusReason: null,
  sourceExportId: null,
  nextStartTime: null,
  logPosition: null,
  membersUntil: '2026-03-02T00:00:00.000000Z',
  startedAt: '2026-03-02T00:00:00.000000Z',
  manifestAt: null,
  createdAt: '2026-03-02T00:00:00.000000Z',
  updatedAt: '2026-03-02T00:00:00.000000Z',
  finishedAt: null,
  runsTotal: 2,
  runsCompleted: 1,
  rowsWritten: 1_000,
  bytesWritten: 2_500_000,
  files: 1,
  rowsCounted: 4_000,
  runsCounted: 2,
  millionthsDone: 500_000,
  lateRuns: 0,
  retries: 0,
  ...overrides,
});

const runOf = (facts: Partial<ExportRunWithFiles> = {}): ExportRunWithFiles => ({
  id,
  exportId: id,
  workspaceId: id,
  startTime: '2026-03-01T00:00:00.000000Z',
  endTime: '2026-03-02T00:00:00.000000Z',
  status: 'FAILED',
  fence: 3,
  retryNumber: 2,
  errors: { retry_0: 'Access denied.', retry_1: 'Access denied.', retry_2: 'Bucket is not valid.' },
  rowsTotal: null,
  rowsWritten: 0,
  bytesWritten: 0,
  lateRuns: null,
  latestCursor: null,
  pendingUpload: null,
  attemptStartedAt: null,
  nextAttemptAt: '2026-03-02T00:00:00.000000Z',
  createdAt: '2026-03-02T00:00:00.000000Z',
  updatedAt: '2026-03-02T00:00:00.000000Z',
  finishedAt: null,
  fileCount: 0,
  paths: [],
  folder: 'lake/a/runs',
  prefix: 'lake/a',
  ...facts,
});

describe('quantities', () => {
  it.each([
    [0, '0 B'],
    [999, '999 B'],
    [1_000, '1.0 kB'],
    [9_949, '9.9 kB'],
    [9_950, '10 kB'],
    [999_499, '999 kB'],
    [999_500, '1.0 MB'],
    [2_500_000_000, '2.5 GB'],
  ])('%d bytes are %s', (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  it.each([
    [0.04, '0.0 s'],
    [9.94, '9.9 s'],
    [9.96, '10 s'],
    [59.4, '59 s'],
    [59.6, '1 min 00 s'],
    [200, '3 min 20 s'],
    [3_599.4, '59 min 59 s'],
    [3_600, '1 h 00 min'],
    [7_499, '2 h 05 min'],
  ])('%d seconds are %s', (seconds, text) => expect(formatDuration(seconds)).toBe(text));

  it('groups digits the same in every locale', () => expect(formatNumber(1_234_567.6)).toBe('1,234,568'));
});

describe('progress', () => {
  it('is computed from the finished share of each day, and is 1 only for COMPLETED', () => {
    expect(computeCompletedShare(makeExport())).toBe(0.25);
    expect(computeCompletedShare(makeExport({ runsTotal: 0, millionthsDone: 0 }))).toBe(0);
    expect(computeCompletedShare(makeExport({ millionthsDone: 2_000_000 }))).toBe(0.99);
    expect(computeCompletedShare(makeExport({ status: 'COMPLETED' }))).toBe(1);
  });

  it('shows rows, bytes, rate and remaining time', () => {
    expect(formatProgress(makeExport(), now)).toBe(
      '25 %  1,000 of 4,000 rows  1 of 2 days  2.5 MB  100 rows/s  30 s left',
    );
    expect(formatProgress(makeExport({ runsCounted: 1, rowsWritten: 0, millionthsDone: 1_000_000 }), now)).toBe(
      '50 %  0 rows  1 of 2 days  2.5 MB',
    );
  });

  it('shows why the export has not started', () => {
    expect(formatProgress(makeExport({ status: 'CREATED', statusReason: 'Waits for a free slot.' }), now)).toBe(
      'Waits for a free slot.',
    );
    expect(formatProgress(makeExport({ status: 'CREATED' }), now)).toBe('Waiting for a worker.');
  });

  it('draws a bar that fits its line', () => {
    expect(formatProgressBar(makeExport(), now, 200)).toMatch(/^█{6}░{18} {2}25 %/);
    expect(formatProgressBar(makeExport(), now, 40)).toHaveLength(40);
    expect(formatProgressBar(makeExport(), now, 40)).toMatch(/…$/);
  });
});

describe('the summary', () => {
  it('shows the result, its location, and the late runs', () => {
    const of = makeExport({ status: 'COMPLETED', finishedAt: '2026-03-02T00:00:12.500000Z', lateRuns: 1 });
    expect(formatResult(of, [runOf({ status: 'COMPLETED', errors: null })])).toEqual([
      'COMPLETED in 13 s: 1,000 rows in 1 file, 2.5 MB.',
      'Files: lake/a',
      '1 run of the range arrived after the export was created and is not included.',
    ]);
  });

  it('lists the errors, each repeated cause once', () => {
    const of = makeExport({
      status: 'FAILED',
      statusReason: 'A run failed.',
      files: 0,
      rowsWritten: 0,
      bytesWritten: 0,
    });
    expect(formatResult(of, [runOf(), runOf({ status: 'CANCELLED', errors: null })])).toEqual([
      'FAILED: 0 rows in 0 files, 0 B.',
      'A run failed.',
      '  2026-03-01 FAILED, 3 attempts failed:',
      '    attempts 1 to 2: Access denied.',
      '    attempt 3: Bucket is not valid.',
    ]);
  });

  it('sorts attempts numerically', () => {
    const errors = Object.fromEntries([10, 2, 0].map((number) => [`retry_${number}`, `cause ${number}`]));
    expect(listFailedAttempts({ errors }).map(({ number }) => number)).toEqual([1, 3, 11]);
    expect(formatFailures(runOf({ errors: null }))).toEqual([]);
  });
});

describe('the screen', () => {
  const screen = (isTTY: boolean, json = false) => {
    const written: string[] = [];
    const output = { isTTY, columns: 60, write: (text: string | Uint8Array) => written.push(String(text)) > 0 };
    return { written, ...openScreen(output, json) };
  };

  it('redraws a bar on a terminal', () => {
    const { written, show, note, end } = screen(true);
    show(makeExport(), now);
    show(makeExport({ millionthsDone: 1_000_000 }), now);
    note('a\u001b[2Jline');
    end(['over']);
    expect(written[0]).toContain(`\r\x1b[K${'█'.repeat(6)}░`);
    expect(written[0]?.replace('\r\x1b[K', '').length).toBeLessThan(60);
    expect(written[1]).toContain(`\r\x1b[K${'█'.repeat(12)}░`);
    expect(written[2]).toBe('\r\x1b[Ka\u{FFFD}[2Jline\n');
    expect(written[3]).toBe('\nover\n');
  });

  it('writes a line for each tenth or every ten seconds if the output is not a terminal', () => {
    const { written, show, end } = screen(false);
    const at = (seconds: number) => new Date(now.getTime() + seconds * 1_000);
    show(makeExport(), at(0));
    show(makeExport({ millionthsDone: 505_000 }), at(1));
    show(makeExport({ millionthsDone: 700_000 }), at(2));
    show(makeExport({ millionthsDone: 705_000 }), at(11));
    show(makeExport({ millionthsDone: 705_000 }), at(12.1));
    end(['over']);
    expect(written.map((line) => line.slice(0, 4))).toEqual(['25 %', '35 %', '35 %', 'over']);
    expect(written.join('')).not.toContain('\x1b');
  });

  it('writes only JSON, one line per change', () => {
    const { written, show, note, end } = screen(true, true);
    show(makeExport(), now);
    show(makeExport(), new Date(now.getTime() + 5_000));
    show(makeExport({ status: 'COMPLETED' }), now);
    note('a note');
    end(['over']);
    expect(written.map((line) => JSON.parse(line).status)).toEqual(['RUNNING', 'COMPLETED']);
    expect(written.every((line) => line.endsWith('\n'))).toBe(true);
  });
});
