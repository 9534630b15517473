import { expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';

/** The specification of bulk exports fixes these defaults: users who know them from the original API rely on them. */
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
