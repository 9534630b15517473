import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buildOtlpResponse, type OtlpResponse } from '../../../../pipelines/ingest/otlp/read-otlp.ts';

export interface CapturedRequest {
  readonly contentType: string;
  readonly body: Buffer;
}

/** A server that records the bodies that exporters send, and responds like Runlake. */
export interface Collector {
  readonly origin: string;
  /** URL to which exporters send traces. */
  readonly url: string;
  readonly requests: CapturedRequest[];
  close(): Promise<void>;
}

export async function startCollector(
  answer: (contentType: string) => OtlpResponse = (contentType) => buildOtlpResponse(contentType, 0, ''),
): Promise<Collector> {
  const requests: CapturedRequest[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const contentType = request.headers['content-type'] ?? '';
      if (request.method !== 'POST') {
        // Clients request /info first.
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
        return;
      }
      requests.push({ contentType, body: Buffer.concat(chunks) });
      const { contentType: type, body } = answer(contentType);
      response.writeHead(200, { 'content-type': type }).end(body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const origin = `http://127.0.0.1:${port}`;
  return {
    origin,
    url: `${origin}/v1/traces`,
    requests,
    close: () =>
      new Promise((resolve, reject) => {
        server.closeAllConnections();
        server.close((error) => (error ? reject(error) : resolve()));
      }),
  };
}
