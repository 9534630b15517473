import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { Reporter, TestModule } from 'vitest/node';
import { listOmittedSuites } from './long-suites.ts';
import { seed } from './seed.ts';
import { closingLines, type FileReport, identifyFile, type TestReport } from './test-report.ts';

/** Maximum line length; enough for the name of a test and the beginning of its message. */
const lineLength = 300;

/**
 * Prints, at the end of a run, a line for each failed test and one line for tools, `N passed, N failed, N skipped`. The
 * full report of a failure is far above it, and some log viewers keep only the end of the output. If
 * `RUNLAKE_TEST_REPORT` names a file, the report is also written to that file as JSON.
 */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const { suites, onStack } = listOmittedSuites(process.env.RUNLAKE_TEST_PART);
    const report: TestReport = {
      files: modules.map(buildFileReport),
      outside: errors.map((error) => formatErrorLine('outside of tests', error as Partial<Error> | null)),
      leftOut: [...suites, ...onStack.map((file) => identifyFile({ project: 'stack', file }))],
      seed,
    };
    for (const line of closingLines(report)) console.log(line);
    const path = process.env.RUNLAKE_TEST_REPORT;
    if (path) writeFileSync(path, JSON.stringify(report));
  }
}

function buildFileReport(module: TestModule): FileReport {
  // The project `x-sharing` runs the same suites as `x`, in a shared process.
  const project = module.project.name.replace('-sharing', '');
  const file = relative(module.project.config.root, module.moduleId);
  const where = identifyFile({ project, file });
  const counts = { passed: 0, skipped: 0 };
  const failures: string[] = [];
  for (const test of module.children.allTests()) {
    const { state, errors } = test.result();
    if (state === 'passed' || state === 'skipped') counts[state]++;
    else failures.push(formatErrorLine(`${where}: ${test.fullName}`, errors?.[0]));
  }
  // A module that fails to load or to set up has no failed tests.
  for (const error of module.errors()) failures.push(formatErrorLine(where, error));
  for (const suite of module.children.allSuites())
    for (const error of suite.errors()) failures.push(formatErrorLine(`${where}: ${suite.fullName}`, error));
  const { setupDuration, collectDuration, duration } = module.diagnostic();
  const seconds = (setupDuration + collectDuration + duration) / 1_000;
  return { project, file, ...counts, seconds, failures };
}

function formatErrorLine(where: string, error: Partial<Error> | null | undefined): string {
  const { message = 'no message', cause } = error ?? {};
  const reason = (cause as Partial<Error> | null | undefined)?.message;
  const text = reason === undefined ? message : `${message} (${reason})`;
  return `${where}: ${text.replaceAll(/\s+/g, ' ')}`.slice(0, lineLength);
}
