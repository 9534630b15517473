import type { InternalConfig } from '../infra/config/internals.ts';

type Environment = Readonly<Record<string, string>>;

/** Returns variables that replace constants of `infra/config/internals.ts` in a process that a test starts. */
export function testSettings(values: Partial<InternalConfig>): Record<string, string> {
  return { NODE_ENV: 'test', RUNLAKE_TEST_SETTINGS: JSON.stringify(values) };
}

/** Merges variables; later variables win. Constants that {@link testSettings} replaces are merged one by one. */
export function joinEnvironments(...environments: readonly (Environment | undefined)[]): Record<string, string> {
  const joined: Record<string, string> = Object.assign({}, ...environments);
  const values = environments.map((environment) => JSON.parse(environment?.RUNLAKE_TEST_SETTINGS ?? '{}'));
  return { ...joined, ...(joined.RUNLAKE_TEST_SETTINGS && testSettings(Object.assign({}, ...values))) };
}
