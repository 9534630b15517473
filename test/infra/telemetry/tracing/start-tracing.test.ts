import { createServer, type IncomingMessage, type Server } from 'node:http';
import { ROOT_CONTEXT } from '@opentelemetry/api';
import { afterEach, expect, it, vi } from 'vitest';
import { loadConfig } from '../../../../infra/config/load.ts';
import type { LogMessage } from '../../../../infra/event-log/event-log.ts';
import type { Logger } from '../../../../infra/telemetry/logger.ts';
import { registry } from '../../../../infra/telemetry/metrics.ts';
import { startRequestSpan, traceInsert, tracePublish } from '../../../../infra/telemetry/tracing/spans.ts';
import {
  buildTracesUrl,
  getActiveTracing,
  startTracing,
  type Tracing,
} from '../../../../infra/telemetry/tracing/start-tracing.ts';
import { runEvents } from '../../../../schemas/topics.ts';
import { listenOnLoopback } from '../../listen-on-loopback.ts';

let tracing: Tracing | undefined;
let server: Server | undefined;
const warnings: object[] = [];
const quiet = () => undefined;
const logger: Logger = {
  debug: quiet,
  info: quiet,
  error: quiet,
  warn: (line: object) => void warnings.push(line),
  child: () => logger,
};

afterEach(async () => {
  vi.unstubAllEnvs();
  await tracing?.stop();
  tracing = undefined;
  server?.closeAllConnections();
  await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
  server = undefined;
  warnings.length = 0;
});

async function start(endpoint: string): Promise<Tracing> {
  const { config } = loadConfig({ OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: endpoint });
  tracing = await startTracing({ config, role: 'test', version: '0', logger });
  return tracing;
}

/** Starts an endpoint that responds with `answer`. */
async function listen(answer: (end: (status: number) => void, request: IncomingMessage) => void): Promise<string> {
  const listening = createServer((request, response) => {
    request.resume();
    request.on('end', () => answer((status) => response.writeHead(status).end(), request));
  });
  server = listening;
  const port = await listenOnLoopback(listening);
  return `http://127.0.0.1:${port}/v1/traces`;
}

function makeSpans(count: number): void {
  for (let index = 0; index < count; index++) {
    startRequestSpan({ method: 'GET', route: '/', operation: 'test', headers: {} })?.end(200, undefined);
  }
}

async function failedSpans(): Promise<number> {
  const line = (await registry.getSingleMetricAsString('runlake_tracing_spans_total'))
    .split('\n')
    .find((text) => text.includes('outcome="failed"'));
  return Number(line?.split(' ').at(-1) ?? 0);
}

const messages: readonly LogMessage[] = [{ key: 'k', value: Buffer.from('v') }];

it('without an exporter it copies no message and reads no record', async () => {
  const { config } = loadConfig({});
  tracing = await startTracing({ config, role: 'test', version: '0', logger });
  expect(getActiveTracing()).toBeUndefined();
  expect(startRequestSpan({ method: 'GET', route: '/', operation: 'test', headers: {} })).toBeUndefined();
  let sent: readonly LogMessage[] | undefined;
  await tracePublish('run-events', messages, async (given) => {
    sent = given;
  });
  expect(sent).toBe(messages);
  const batch = {
    topic: runEvents,
    partition: 0,
    get records(): never {
      throw new Error('looked at');
    },
  };
  expect(await traceInsert(batch, async () => 'stored')).toBe('stored');
});

it('publishes messages outside of a request unchanged', async () => {
  await start(await listen((end) => end(200)));
  let sent: readonly LogMessage[] | undefined;
  await tracePublish('run-events', messages, async (given) => {
    sent = given;
  });
  expect(sent).toBe(messages);
});

it('keeps existing message headers', async () => {
  await start(await listen((end) => end(200)));
  const span = startRequestSpan({ method: 'POST', route: '/', operation: 'test', headers: {} });
  const sent: LogMessage[] = [];
  const send = async (given: readonly LogMessage[]) => void sent.push(...given);
  await span?.run(() => tracePublish('t', [...messages, { ...messages[0]!, headers: { from: 'test' } }], send));
  span?.end(202, undefined);
  const traceparent = expect.stringMatching(new RegExp(`^00-${span?.traceId}-[0-9a-f]{16}-01$`));
  expect(sent.map(({ headers }) => headers)).toEqual([{ traceparent }, { from: 'test', traceparent }]);
  expect(getActiveTracing()?.contextManager.active()).toBe(ROOT_CONTEXT);
});

it.each([
  ['refuses spans', (end: (status: number) => void) => end(400)],
  ['fails', (end: (status: number) => void) => end(500)],
])('an endpoint that %s loses spans and logs one warning, but does not delay the stop', async (_what, answer) => {
  const before = await failedSpans();
  const { stop } = await start(await listen(answer));
  makeSpans(2_000);
  const startedAtMs = performance.now();
  await stop();
  expect(performance.now() - startedAtMs).toBeLessThan(10_000);
  await expect.poll(failedSpans, { timeout: 20_000 }).toBe(before + 2_000);
  expect(warnings).toHaveLength(1);
});

it('an endpoint that is unreachable or never responds delays the stop at most by the timeout', async () => {
  for (const endpoint of ['http://127.0.0.1:1/v1/traces', await listen(() => undefined)]) {
    const { stop } = await start(endpoint);
    makeSpans(10);
    const startedAtMs = performance.now();
    await stop();
    expect(performance.now() - startedAtMs).toBeLessThan(8_000);
  }
});

it.each([
  [{}, undefined],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318' }, 'http://c:4318/v1/traces'],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318/otel/' }, 'http://c:4318/otel/v1/traces'],
  [
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c', OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://t/as/it/is' },
    'http://t/as/it/is',
  ],
])('takes the endpoint from %o', (environment, url) => {
  expect(buildTracesUrl(loadConfig(environment).config)).toBe(url);
});

it('reads headers and sampler from the standard variables', async () => {
  const keys: unknown[] = [];
  const endpoint = await listen((end, request) => {
    keys.push(request.headers['x-api-key']);
    end(200);
  });
  vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', 'x-api-key=a%20b');
  for (const sampler of ['always_on', 'always_off']) {
    vi.stubEnv('OTEL_TRACES_SAMPLER', sampler);
    const { stop } = await start(endpoint);
    makeSpans(1);
    await stop();
  }
  expect(keys).toEqual(['a b']);
});

it('refuses an endpoint of another protocol', () => {
  const variable = 'OTEL_EXPORTER_OTLP_ENDPOINT';
  expect(() => loadConfig({ [variable]: 'grpc://c:4317' })).toThrow(variable);
});
