import { createServer } from 'node:net';
import { afterEach, expect, it, onTestFinished } from 'vitest';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import {
  type HealthCheck,
  startTelemetryServer,
  type TelemetryServer,
} from '../../../infra/telemetry/telemetry-server.ts';
import { logger } from '../../silent-logger.ts';
import { listenOnLoopback } from '../listen-on-loopback.ts';

let server: TelemetryServer | undefined;
afterEach(async () => {
  await server?.close();
  server = undefined;
});

async function start(healthChecks: readonly HealthCheck[] = []): Promise<TelemetryServer> {
  server = await startTelemetryServer({ host: '127.0.0.1', port: 0, healthChecks: () => healthChecks, logger });
  return server;
}

it('serves metrics in the text format, liveness and readiness', async () => {
  const { url } = await start([{ name: 'postgres', check: async () => undefined }]);
  const metrics = await fetch(`${url}/metrics`);
  expect(metrics.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8');
  expect(await metrics.text()).toContain('runlake_process_cpu_seconds_total');
  expect(await (await fetch(`${url}/ok`)).json()).toEqual({ ok: true });
  expect(await (await fetch(`${url}/ready/?verbose=1`)).json()).toMatchObject({
    status: 'ready',
    parts: { postgres: { up: true } },
  });
});

it('is not ready while a part is down or while it drains', async () => {
  let up = false;
  const check = async () => {
    if (!up) throw runlakeError('DATABASE_UNAVAILABLE');
  };
  const { url, startDraining } = await start([{ name: 'postgres', check }]);
  const ready = async () => {
    const answer = await fetch(`${url}/ready`);
    return { status: answer.status, body: await answer.json() };
  };
  expect(await ready()).toMatchObject({
    status: 503,
    body: { status: 'not_ready', parts: { postgres: { up: false, code: 'DATABASE_UNAVAILABLE' } } },
  });
  up = true;
  expect(await ready()).toMatchObject({ status: 200, body: { status: 'ready' } });
  startDraining();
  expect(await ready()).toMatchObject({ status: 503, body: { status: 'draining' } });
  expect((await fetch(`${url}/ok`)).status).toBe(200);
});

it.each([
  ['GET', '/', 404],
  ['GET', '/sessions', 404],
  ['GET', '/__proto__', 404],
  ['POST', '/metrics', 405],
  ['HEAD', '/ok', 200],
])('%s %s is answered with %i', async (method, path, status) => {
  const { url } = await start();
  expect((await fetch(url + path, { method })).status).toBe(status);
});

it('reports a port that is in use, with its setting', async () => {
  const other = createServer();
  const port = await listenOnLoopback(other);
  onTestFinished(() => {
    other.close();
  });
  await expect(startTelemetryServer({ host: '127.0.0.1', port, healthChecks: () => [], logger })).rejects.toMatchObject(
    {
      code: 'METRICS_PORT_UNUSABLE',
      message: expect.stringContaining('EADDRINUSE'),
      remedy: expect.stringContaining('RUNLAKE_METRICS_PORT'),
    },
  );
});
