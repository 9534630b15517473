/** What became of the tests of one file in one project of the runner. */
export interface FileReport {
  readonly project: string;
  /** Below the root of the project. */
  readonly file: string;
  readonly passed: number;
  readonly skipped: number;
  /** Duration of its tests and hooks. */
  readonly seconds: number;
  /** A line for each test, and for each hook and file that failed without one: where it was, and its message. */
  readonly failures: readonly string[];
}

export interface TestReport {
  readonly files: readonly FileReport[];
  /** Faults that belong to no file. */
  readonly outside: readonly string[];
}

const slowestFiles = 30;

/**
 * The last lines of a run: the slowest suites, if any takes ten seconds; suites that failed first and passed alone;
 * failures; and the plain line that tools read.
 */
export function closingLines({ files, outside }: TestReport, unsteady: readonly string[] = []): string[] {
  const slow = files.filter(({ seconds }) => seconds >= 10).sort((a, b) => b.seconds - a.seconds);
  const failures = [...files.flatMap((file) => file.failures), ...outside];
  const sum = (count: 'passed' | 'skipped') => files.reduce((total, file) => total + file[count], 0);
  return [
    ...slow.slice(0, slowestFiles).map((file) => `${Math.round(file.seconds)} s: ${nameOf(file)}`),
    ...unsteady.map((line) => `unsteady: ${line}`),
    ...failures.map((line) => `failed: ${line}`),
    `${sum('passed')} passed, ${failures.length} failed, ${sum('skipped')} skipped`,
  ];
}

/** Tells a file in one project from the same one in another. */
export const nameOf = ({ project, file }: Pick<FileReport, 'project' | 'file'>) => `${project} ${file}`;

export const failedFiles = ({ files }: TestReport) => files.filter(({ failures }) => failures.length > 0);

/** The first report with the files of the second one in place of its own. */
export function withSecondAttempt(first: TestReport, second: TestReport): TestReport {
  const again = new Map(second.files.map((file) => [nameOf(file), file]));
  return {
    files: first.files.map((file) => again.get(nameOf(file)) ?? file),
    outside: [...first.outside, ...second.outside],
  };
}
