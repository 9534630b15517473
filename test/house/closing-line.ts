import type { Reporter, TestModule } from 'vitest/node';

/** Closes a run with one plain line, `N passed, N failed, N skipped`, which tools read more easily than the summary. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly unknown[]): void {
    const counts = { passed: 0, failed: 0, skipped: 0 };
    for (const module of modules) {
      let tests = 0;
      for (const test of module.children.allTests()) {
        tests++;
        const { state } = test.result();
        counts[state === 'passed' || state === 'skipped' ? state : 'failed']++;
      }
      // A file that cannot even be read has no tests to count.
      if (tests === 0 && module.state() === 'failed') counts.failed++;
    }
    console.log(`${counts.passed} passed, ${counts.failed + errors.length} failed, ${counts.skipped} skipped`);
  }
}
