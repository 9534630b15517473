import { randomUUID } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { expect } from 'vitest';
import { formatDottedOrderSegment } from '../../../../pipelines/ingest/run-event/dotted-order.ts';
import { formatTime } from '../../../../pipelines/ingest/run-event/times.ts';
import { forSuite } from '../../../for-suite.ts';
import { type ApiOptions, addOrganization, startApi } from '../../start-api.ts';

export const boundary = '----TestBoundary';
export const multipartType = `multipart/form-data; boundary=${boundary}`;

/** Returns a valid root run that started a minute ago, as JSON members. */
export function rootRun(overrides: Record<string, unknown> = {}): Record<string, unknown> & { id: string } {
  const id = (overrides.id as string | undefined) ?? randomUUID();
  const micros = Date.now() * 1_000 - 60_000_000;
  return {
    id,
    trace_id: id,
    dotted_order: formatDottedOrderSegment(micros, id),
    name: 'root',
    run_type: 'chain',
    start_time: `${formatTime(micros)}Z`,
    inputs: { q: 1 },
    ...overrides,
  };
}

/** Builds a multipart body from names and texts, with headers as the stock SDKs write them. */
export function multipart(
  parts: readonly (readonly [name: string, content: string | Buffer, type?: string])[],
): Buffer {
  const encodedParts = parts.flatMap(([name, content, type = 'application/json']) => {
    const bytes = Buffer.from(content);
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: ${type}; length=${bytes.length}\r\n\r\n`;
    return [Buffer.from(head), bytes, Buffer.from('\r\n')];
  });
  return Buffer.concat([...encodedParts, Buffer.from(`--${boundary}--\r\n`)]);
}

/** Returns the parts of a post: the run, and its inputs as a separate part. */
export function buildPostParts(run: Record<string, unknown> & { id: string }): [string, string][] {
  const { inputs, ...main } = run;
  return [
    [`post.${run.id}`, JSON.stringify(main)],
    [`post.${run.id}.inputs`, JSON.stringify(inputs)],
  ];
}

/** Starts an API with an organisation and its client for a suite. */
export function shareWire(options?: ApiOptions) {
  const api = forSuite(() => startApi(options));
  const own = forSuite(() => addOrganization(api.database, 'own'));
  const wire = forSuite(async () => {
    await api.listen();
    return new Wire(api.server, own.adminKey);
  });
  return { api, own, wire };
}

/** Expects that a request is accepted. */
export async function accepted(answer: Promise<Pick<WireAnswer, 'status' | 'text'>>): Promise<void> {
  const { status, text } = await answer;
  expect([status, text]).toEqual([202, '{}']);
}

export interface WireAnswer {
  readonly status: number;
  readonly text: string;
  readonly headers: Headers;
}

/** Sends requests to a listening server. */
export class Wire {
  readonly url: string;
  readonly key: string;

  constructor(server: FastifyInstance, key: string) {
    const address = server.server.address();
    if (address === null || typeof address === 'string') throw new Error('the server does not listen');
    this.url = `http://127.0.0.1:${address.port}`;
    this.key = key;
  }

  async send(
    method: string,
    path: string,
    body?: string | Buffer,
    headers: Record<string, string> = {},
  ): Promise<WireAnswer> {
    const answer = await fetch(`${this.url}${path}`, {
      method,
      headers: { 'x-api-key': this.key, ...headers },
      ...(body !== undefined && { body: typeof body === 'string' ? body : new Uint8Array(body) }),
    });
    return { status: answer.status, text: await answer.text(), headers: answer.headers };
  }

  json(method: string, path: string, body: unknown): Promise<WireAnswer> {
    return this.send(method, path, JSON.stringify(body), { 'content-type': 'application/json' });
  }

  multipart(body: Buffer, headers: Record<string, string> = {}): Promise<WireAnswer> {
    return this.send('POST', '/runs/multipart', body, { 'content-type': multipartType, ...headers });
  }
}
