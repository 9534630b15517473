import { relative } from 'node:path';
import type { Reporter, TestCase, TestModule } from 'vitest/node';

/** Longer than any name of a test; a message is cut to what the line has left. */
const lineLength = 240;

/**
 * Closes a run with a line for each test that failed and the one plain line that tools read, `N passed, N failed, N skipped`.
 * The report of a failure stands far above, and not every place where a run is looked at keeps more than its end.
 */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const counts = { passed: 0, failed: 0, skipped: 0 };
    const lines: string[] = [];
    for (const module of modules) {
      const file = `${module.project.name} ${relative(module.project.config.root, module.moduleId)}`;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed' || state === 'skipped') counts[state]++;
        else lines.push(lineOf(`${file}: ${test.fullName}`, firstMessage(test)));
      }
      // What cannot be read or set up has no test that says so.
      for (const error of module.errors()) lines.push(lineOf(file, error.message));
      for (const suite of module.children.allSuites())
        for (const error of suite.errors()) lines.push(lineOf(`${file}: ${suite.fullName}`, error.message));
    }
    for (const error of errors) lines.push(lineOf('outside of tests', (error as Partial<Error> | null)?.message));
    counts.failed = lines.length;
    for (const line of lines) console.log(line);
    console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
  }
}

const firstMessage = (test: TestCase) => test.result().errors?.[0]?.message;

const lineOf = (where: string, message = 'no message') =>
  `failed: ${where}: ${message.replaceAll(/\s+/g, ' ')}`.slice(0, lineLength);
