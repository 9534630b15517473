import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { loadConfig } from '../../../infra/config/load.ts';
import { type Setting, settings } from '../../../infra/config/settings.ts';

const root = new URL('../../../', import.meta.url);
const variables = Object.values<Setting>(settings).map(({ variable }) => variable);

/** Text of the tests, the guide and the compose files. */
function uses(): string {
  const inFolder = (folder: string, end: string) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith(end) && !file.includes('node_modules'))
      .map((file) => `${folder}${file}`);
  const files = [
    'docker-compose.yml',
    'infra/docker/Dockerfile',
    ...inFolder('test/', '.ts'),
    ...inFolder('docs/guide/', '.ts'),
  ];
  return files.map((file) => readFileSync(new URL(file, root), 'utf8')).join('\n');
}

it('are at most 60, each with a variable of its own', () => {
  expect(variables.length).toBeLessThanOrEqual(60);
  expect(new Set(variables).size).toBe(variables.length);
});

it('are each used by a test, the guide or a compose file', () => {
  const text = uses();
  expect(variables.filter((variable) => !new RegExp(`\\b${variable}\\b`).test(text))).toEqual([]);
});

/** Settings that no process of a test varies. */
it.each([
  ['RUNLAKE_KAFKA_REPLICATION', '3', 'kafkaReplication', 3],
  ['RUNLAKE_RATE_LIMIT_PER_ORGANIZATION', '100', 'rateLimitPerOrganization', 100],
  ['RUNLAKE_EXPORT_RUNS_AT_ONCE', '5', 'exportRunsAtOnce', 5],
  ['RUNLAKE_EXPORTS_PER_WORKSPACE', '3', 'exportsPerWorkspace', 3],
  ['RUNLAKE_EXPORT_CONCURRENCY', '4', 'exportConcurrency', 4],
  ['RUNLAKE_AGENTS_HOST', '0.0.0.0', 'agentsHost', '0.0.0.0'],
  ['RUNLAKE_AGENTS_PUBLIC_URL', 'https://agents.example', 'agentsPublicUrl', 'https://agents.example'],
  ['RUNLAKE_AGENTS_ISOLATION', 'required', 'agentsIsolation', 'required'],
  ['RUNLAKE_AGENTS_WORKER_HEAP_MB', '512', 'agentsWorkerHeapMegabytes', 512],
  ['RUNLAKE_AGENTS_RUN_TIMEOUT_MS', '600000', 'agentsRunTimeoutMs', 600_000],
  ['RUNLAKE_AGENTS_STREAM_HOURS', '48', 'agentsStreamHours', 48],
] as const)('%s=%s sets %s', (variable, text, name, value) => {
  expect(loadConfig({ [variable]: text }).config[name]).toBe(value);
});
