import { Client as NewClient } from 'langsmith-0-12';
import { describe, expect, it, vi } from 'vitest';
import { runlakeError } from '../../../../infra/errors/runlake-error.ts';
import { forSuite } from '../../../for-suite.ts';
import { openClient } from '../../open-client.ts';
import { startApi } from '../../start-api.ts';

const api = forSuite(() =>
  startApi({
    config: { maxBodyBytes: 1024 * 1024, maxParts: 90 },
    services: {
      healthChecks: [
        { name: 'postgres', check: async () => undefined },
        {
          name: 'objects',
          check: async () => (up ? undefined : Promise.reject(runlakeError('CLICKHOUSE_UNAVAILABLE'))),
        },
      ],
    },
  }),
);
/** Whether the health check `objects` succeeds. */
let up = true;

describe('/info', () => {
  it('needs no key and returns the features that clients enable', async () => {
    expect((await api.server.inject('/info')).json()).toEqual({
      version: '0.18.0',
      git_sha: null,
      license_expiration_time: null,
      batch_ingest_config: {
        use_multipart_endpoint: true,
        scale_up_qsize_trigger: 1000,
        scale_up_nthreads_limit: 16,
        scale_down_nempty_trigger: 4,
        size_limit: 10,
        size_limit_bytes: 1024 * 1024,
      },
      instance_flags: {
        gzip_body_enabled: true,
        zstd_compression_enabled: true,
        dataset_examples_multipart_enabled: true,
        examples_multipart_enabled: true,
        ch_query_enabled: true,
        sdb_query_enabled: true,
        openid_connect: false,
      },
      customer_info: null,
    });
  });

  it('satisfies the stock SDK', async () => {
    const client = (await openClient(api, 'x')) as unknown as {
      _ensureServerInfo(): Promise<{ version: string }>;
    };
    expect((await client._ensureServerInfo()).version).toBe('0.18.0');
    // The newest client warns if the version is too old for one of its parts.
    const warn = vi.spyOn(console, 'warn');
    const newest = await openClient(api, 'x', {}, NewClient);
    for (const part of ['runs', 'threads', 'datasets', 'annotationQueues', 'sessions'] as const) void newest[part];
    await (newest as unknown as typeof client)._ensureServerInfo();
    expect(warn.mock.calls).toEqual([]);
    warn.mockRestore();
  });

  it('returns the free disk space of ClickHouse', async () => {
    const { clickhouse_disk_free_pct: percent } = (await api.server.inject('/info/health')).json();
    expect(percent).toBeGreaterThan(0);
    expect(percent).toBeLessThanOrEqual(100);
  });
});

describe('health', () => {
  it('reports liveness', async () => {
    expect((await api.server.inject('/ok')).json()).toEqual({ ok: true });
  });

  it('is ready while all health checks succeed, and names the failing one', async () => {
    const ready = await api.server.inject('/ready');
    expect([ready.statusCode, ready.json().status]).toEqual([200, 'ready']);
    up = false;
    const down = await api.server.inject('/ready');
    expect(down.statusCode).toBe(503);
    expect(down.json()).toMatchObject({
      status: 'not_ready',
      parts: { postgres: { up: true }, objects: { up: false, code: 'CLICKHOUSE_UNAVAILABLE' } },
    });
    up = true;
  });

  it('serves metrics in the text format', async () => {
    const answer = await api.server.inject('/metrics');
    expect(answer.headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8');
    expect(answer.body).toContain('# TYPE runlake_http_request_duration_seconds histogram');
    for (const [, name] of answer.body.matchAll(/^# TYPE (\S+)/gm)) expect(name).toMatch(/^runlake_/);
  });
});
