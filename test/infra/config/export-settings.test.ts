import { expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';

/** Source: SPEC 4.3 rule 4 and SPEC 8; if a limit has two values there, the one in the table. */
it.each([
  ['exportRetries', 20],
  ['exportRetryDelayMs', 30_000],
  ['exportRunTimeoutMs', 4 * 3_600_000],
  ['exportTimeoutMs', 72 * 3_600_000],
  ['exportRunsAtOnce', 45],
  ['exportsPerWorkspace', 15],
  ['exportScheduleDelayMs', 10 * 60_000],
  ['allowPrivateEndpoints', false],
  ['allowDefaultCredentials', true],
  ['localExportRoot', undefined],
] as const)('%s is %j unless it is set', (name, value) => {
  expect(loadConfig({}).config[name]).toBe(value);
});
