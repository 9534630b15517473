import { isBuilt } from './built-sources.ts';

const options = ['--import', import.meta.resolve('tsx')];
// The same condition as for the suite; see `builtSources`.
if (process.env.RUNLAKE_TEST_BUILT === 'true' && isBuilt())
  options.push('--import', new URL('./built-imports.fixture.ts', import.meta.url).href);

/** Node options for a TypeScript program that a suite starts as a process. */
export const childProcessOptions: readonly string[] = options;
