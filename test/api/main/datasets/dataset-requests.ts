import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import type { ApiUnderTest } from '../../start-api.ts';

/** Creates a dataset with a name of its own, and returns its id. */
export async function createDataset({ ask }: ApiUnderTest, key: string, fields: object = {}): Promise<string> {
  const { status, body } = await ask(key, 'POST', '/datasets', { name: randomUUID(), ...fields });
  expect([status, body]).toEqual([200, expect.anything()]);
  return body.id;
}

/** A part of a form. A content that is no text is sent as JSON. */
export type ExamplePart = readonly [name: string, content: unknown, contentType?: string];

interface PartsRequest {
  readonly key: string;
  readonly method?: 'POST' | 'PATCH';
  /** Unset: the examples name their dataset themselves, and are created or updated. */
  readonly datasetId?: string;
}

/** Sends examples as multipart/form-data. */
export async function sendExampleParts(
  { server }: ApiUnderTest,
  { key, method = 'POST', datasetId }: PartsRequest,
  parts: readonly ExamplePart[],
) {
  const url = datasetId === undefined ? '/examples/multipart' : `/datasets/${datasetId}/examples`;
  const body = parts.map(
    ([name, content, type = 'application/json']) =>
      `--cut\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: ${type}\r\n\r\n` +
      `${typeof content === 'string' ? content : JSON.stringify(content)}\r\n`,
  );
  const answer = await server.inject({
    method,
    url: `/v1/platform${url}`,
    headers: { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' },
    payload: `${body.join('')}--cut--\r\n`,
  });
  return { status: answer.statusCode, body: answer.json() };
}
