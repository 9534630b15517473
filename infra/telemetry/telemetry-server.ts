import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isRunlakeError, runlakeError } from '../errors/runlake-error.ts';
import { formatHost } from '../network/format-host.ts';
import { timedOut, withTimeout } from '../timeouts/with-timeout.ts';
import type { Logger } from './logger.ts';
import { collectProcessMetrics, registry } from './metrics.ts';

/** Health check of a part that the process depends on. */
export interface HealthCheck {
  /** Name in `/ready`: `clickhouse`, `postgres`, `event_log`, … */
  readonly name: string;
  /** Resolves if the part works; rejects with a RunlakeError if it does not. */
  check(): Promise<void>;
}

/** Health of a part of the service. `code`, `reason` and `remedy` describe the error if it is down. */
export interface ComponentHealth {
  readonly up: boolean;
  readonly latency_ms: number;
  readonly code?: string;
  readonly reason?: string;
  readonly remedy?: string;
}

/** Checks all parts concurrently. A part that does not respond within `timeoutMs` is reported as down. */
export async function checkHealth(
  checks: readonly HealthCheck[],
  timeoutMs = 2_000,
): Promise<Record<string, ComponentHealth>> {
  return Object.fromEntries(
    await Promise.all(checks.map(async (part) => [part.name, await checkComponent(part, timeoutMs)])),
  );
}

async function checkComponent(part: HealthCheck, timeoutMs: number): Promise<ComponentHealth> {
  const startedAtMs = performance.now();
  try {
    if ((await withTimeout(part.check(), timeoutMs)) === timedOut) {
      throw runlakeError('PART_SILENT', { part: part.name, limitMs: timeoutMs });
    }
    return { up: true, latency_ms: Math.round(performance.now() - startedAtMs) };
  } catch (raw) {
    const error = isRunlakeError(raw) ? raw : runlakeError('INTERNAL', {}, { cause: raw });
    return {
      up: false,
      latency_ms: Math.round(performance.now() - startedAtMs),
      code: error.code,
      reason: error.message,
      remedy: error.remedy,
    };
  }
}

export interface TelemetryServerOptions {
  /** `metricsHost` and `metricsPort` of the configuration; port 0 picks a free port. */
  readonly host: string;
  readonly port: number;
  /** Returns the readiness checks. Called at each request, because the checks change when the role has started. */
  readonly healthChecks: () => readonly HealthCheck[];
  readonly logger: Logger;
}

export interface TelemetryServer {
  /** URL of the server, for example `http://127.0.0.1:9464`. */
  readonly url: string;
  /** Makes `/ready` return `draining`, with 503. */
  startDraining(): void;
  /** Closes the listener and its connections. */
  close(): Promise<void>;
}

/** Maximum number of connections. Scrapers need only a few. */
const maxConnections = 100;
const requestTimeoutMs = 10_000;

/**
 * Starts the HTTP server for metrics and health of roles without their own API: `GET /metrics` for Prometheus, `GET
 * /ok` for liveness, and `GET /ready` with 200 or 503 and the health of each part. The routes match those of the main
 * API and need no API key.
 *
 * @throws METRICS_PORT_UNUSABLE
 */
export async function startTelemetryServer(options: TelemetryServerOptions): Promise<TelemetryServer> {
  const { host, port, healthChecks, logger } = options;
  collectProcessMetrics();
  let isDraining = false;

  const handlers: Readonly<Record<string, (response: ServerResponse) => Promise<void>>> = {
    '/metrics': async (response) => {
      const text = await registry.metrics();
      response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(text);
    },
    '/ok': async (response) => sendJson(response, 200, { ok: true }),
    '/ready': async (response) => {
      const parts = await checkHealth(healthChecks());
      const isUp = Object.values(parts).every((part) => part.up);
      const status = isDraining ? 'draining' : isUp ? 'ready' : 'not_ready';
      sendJson(response, status === 'ready' ? 200 : 503, { status, parts });
    },
  };

  const server = createServer(
    { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs },
    (request, response) => {
      request.resume();
      response.setHeader('x-content-type-options', 'nosniff');
      const handle = handlers[(request.url ?? '/').split('?', 1)[0]?.replace(/(?<=.)\/$/, '') ?? '/'];
      if (handle === undefined) return sendJson(response, 404, { detail: 'Not found.' });
      if (request.method !== 'GET' && request.method !== 'HEAD') {
        response.setHeader('allow', 'GET, HEAD');
        return sendJson(response, 405, { detail: 'Method not allowed.' });
      }
      handle(response).catch((err: unknown) => {
        logger.error({ err }, 'a telemetry request failed');
        if (!response.headersSent) sendJson(response, 500, { detail: 'Internal error.' });
        else response.destroy();
      });
    },
  );
  server.maxConnections = maxConnections;
  await listen(server, host, port);
  const url = getUrl(server);
  logger.info({ url }, 'serving metrics and readiness');
  return {
    url,
    startDraining: () => {
      isDraining = true;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      reject(runlakeError('METRICS_PORT_UNUSABLE', { host, port, reason: cause.code ?? String(cause) }, { cause }));
    });
    server.listen(port, host, resolve);
  });
}

function getUrl(server: Server): string {
  const { address, port } = server.address() as AddressInfo;
  return `http://${formatHost(address, port)}`;
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8' }).end(JSON.stringify(body));
}
