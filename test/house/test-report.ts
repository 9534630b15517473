/** Results of one test file in one project of the runner. */
export interface FileReport {
  readonly project: string;
  /** Path relative to the root of the project. */
  readonly file: string;
  readonly passed: number;
  readonly skipped: number;
  /** Duration of the tests and hooks of the file. */
  readonly seconds: number;
  /** One line with name and message for each failed test, and for each hook or file that failed outside a test. */
  readonly failures: readonly string[];
}

export interface TestReport {
  readonly files: readonly FileReport[];
  /** Errors outside of any file. */
  readonly outside: readonly string[];
  /** Suites that this run left out; see `long-suites.ts`. */
  readonly leftOut: readonly string[];
  readonly seed: number;
}

const slowestFiles = 30;

/**
 * Returns the last lines of a run: the slowest suites, if any takes ten seconds; the suites that the run left out;
 * suites that passed only in the second attempt; failures; the seed that repeats the run; and the line for tools.
 */
export function closingLines(
  { files, outside, leftOut, seed }: TestReport,
  unsteady: readonly string[] = [],
): string[] {
  const slow = files.filter(({ seconds }) => seconds >= 10).sort((a, b) => b.seconds - a.seconds);
  const failures = [...files.flatMap((file) => file.failures), ...outside];
  const sum = (count: 'passed' | 'skipped') => files.reduce((total, file) => total + file[count], 0);
  return [
    ...slow.slice(0, slowestFiles).map((file) => `${Math.round(file.seconds)} s: ${identifyFile(file)}`),
    ...(leftOut.length > 0 ? [`not in this run, but in make test-all: ${leftOut.join(', ')}`] : []),
    ...unsteady.map((line) => `unsteady: ${line}`),
    ...failures.map((line) => `failed: ${line}`),
    `RUNLAKE_TEST_SEED=${seed} repeats the random cases`,
    `${sum('passed')} passed, ${failures.length} failed, ${sum('skipped')} skipped`,
  ];
}

/** Returns a name that identifies a file within a project: the same file may run in several projects. */
export const identifyFile = ({ project, file }: Pick<FileReport, 'project' | 'file'>) => `${project} ${file}`;

export const failedFiles = ({ files }: TestReport) => files.filter(({ failures }) => failures.length > 0);

/** Returns the first report, in which the files of the second report replace those of the first. */
export function mergeSecondAttempt(first: TestReport, second: TestReport): TestReport {
  const again = new Map(second.files.map((file) => [identifyFile(file), file]));
  return {
    files: first.files.map((file) => again.get(identifyFile(file)) ?? file),
    outside: [...first.outside, ...second.outside],
    leftOut: first.leftOut,
    seed: first.seed,
  };
}
