import { describe, expect, it } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { checkHealth } from '../../../infra/telemetry/telemetry-server.ts';

describe('checkHealth', () => {
  it('lists each part, with the reason for those that are down', async () => {
    const parts = await checkHealth(
      [
        { name: 'postgres', check: async () => undefined },
        { name: 'clickhouse', check: () => Promise.reject(runlakeError('CLICKHOUSE_UNAVAILABLE')) },
        { name: 'event_log', check: () => Promise.reject(new Error('password=hunter2')) },
        { name: 'objects', check: () => new Promise(() => undefined) },
      ],
      20,
    );
    expect(parts).toMatchObject({
      postgres: { up: true },
      clickhouse: { up: false, code: 'CLICKHOUSE_UNAVAILABLE' },
      event_log: { up: false, code: 'INTERNAL' },
      objects: { up: false, code: 'PART_SILENT' },
    });
    expect(JSON.stringify(parts)).not.toContain('hunter2');
  });
});
