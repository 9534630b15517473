import { isBuilt } from './built-sources.ts';

const options = ['--import', import.meta.resolve('tsx')];
// As the suite itself: see `builtSources`.
if (process.env.RUNLAKE_TEST_BUILT === 'true' && isBuilt())
  options.push('--import', new URL('./built-imports.fixture.ts', import.meta.url).href);

/** Options of Node for a program in TypeScript that a suite starts as a process. */
export const childOfSuite: readonly string[] = options;
