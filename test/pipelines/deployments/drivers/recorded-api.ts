/**
 * Replays exchanges with the API of a server that tests cannot have. The exchanges are written after the references of
 * the APIs and the requests of the libraries; they were not recorded from a running server. So the tests show which
 * requests a driver sends and how it reacts to responses, and nothing about the behaviour of Docker or Kubernetes.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect } from 'vitest';
import type { ReplicaSpec } from '../../../../pipelines/deployments/driver.ts';
import { listenOnLoopback } from '../../../infra/listen-on-loopback.ts';

export const revisionId = '3f0f4a8e-0f64-4d3c-9a55-7f1d3f1f0001';
export const name = `runlake-${revisionId}-1`;
export const image = 'registry.example/trips:1.2';

/** The replica that the drivers start, without what differs between them. */
export const commonSpec = {
  deploymentId: '9b0d7a34-5a6b-4f0e-8a51-0c8c2f9d0002',
  revisionId,
  name: 'Trips',
  slug: 'trips',
  number: 1,
  imageUri: image,
} as const satisfies Partial<ReplicaSpec>;

export interface Exchange {
  /** Method and decoded target, such as `GET /containers/x/json`. A time in `since` is `TIME`. */
  readonly request: string;
  /** Fields that the body of the request contains. */
  readonly sends?: object;
  readonly status?: number;
  /** Objects are sent as JSON. */
  readonly body?: object | string | Buffer;
  readonly contentType?: string;
  /** The response ends only when this resolves. */
  readonly until?: Promise<unknown>;
  /** The connection is cut at the end of the response. */
  readonly isCut?: boolean;
  /** Number of times that the exchange takes place. Default: once. */
  readonly times?: number | 'any';
}

export interface RecordedApi {
  readonly port: number;
  /** Requests that have arrived. */
  readonly requests: readonly string[];
  /** Bodies of the requests, in the same order. */
  readonly bodies: readonly string[];
  /** Replaces the exchanges of the same request. */
  replace(exchange: Exchange): void;
  /** Closes the server. @throws if a request was not expected, or an expected one has not arrived. */
  close(): Promise<void>;
}

export async function openRecordedApi(exchanges: readonly Exchange[]): Promise<RecordedApi> {
  const left = exchanges.map((exchange) => ({ exchange, times: exchange.times ?? 1 }));
  const requests: string[] = [];
  const bodies: string[] = [];
  const problems: string[] = [];
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    const name = decodeURIComponent(`${request.method} ${request.url}`).replace(/([?&]since)=[\d.]+/, '$1=TIME');
    const sent = await text(request);
    requests.push(name);
    bodies.push(sent);
    const next = left.find(({ exchange, times }) => exchange.request === name && times !== 0);
    if (next === undefined) {
      problems.push(`unexpected: ${name} ${sent}`);
      response.writeHead(500).end('{"message":"not recorded"}');
      return;
    }
    if (typeof next.times === 'number') next.times -= 1;
    const { sends, status = 200, body = '', contentType, until, isCut } = next.exchange;
    try {
      if (sends !== undefined) expect(JSON.parse(sent)).toMatchObject(sends);
    } catch (error) {
      problems.push(`${name}: ${(error as Error).message}`);
    }
    const isJson = typeof body === 'object' && !Buffer.isBuffer(body);
    response.writeHead(status, { 'content-type': contentType ?? 'application/json' });
    response.write(isJson ? JSON.stringify(body) : body);
    await until;
    if (isCut) response.destroy();
    else response.end();
  });
  const port = await listenOnLoopback(server);
  return {
    port,
    requests,
    bodies,
    replace(exchange) {
      const others = left.filter((each) => each.exchange.request !== exchange.request);
      left.splice(0, left.length, ...others, { exchange, times: exchange.times ?? 1 });
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      const missing = left.filter(({ times }) => typeof times === 'number' && times > 0);
      expect([...problems, ...missing.map(({ exchange }) => `missing: ${exchange.request}`)]).toEqual([]);
    },
  };
}

/** Options with which a test starts a replica; `lines` receives its output, and `stopping` aborts the start. */
export function createStartOptions() {
  const lines: string[] = [];
  const stopping = new AbortController();
  return { lines, stopping, options: { signal: stopping.signal, onLog: (line: string) => lines.push(line) } };
}
