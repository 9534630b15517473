import type { ApiUnderTest } from '../../start-api.ts';

/** A part of a form. A content that is no text is sent as JSON. */
export type ExamplePart = readonly [name: string, content: unknown, contentType?: string];

/** Sends examples as multipart/form-data. */
export async function sendExampleParts(
  { server }: ApiUnderTest,
  { key, method = 'POST', url }: { readonly key: string; readonly method?: 'POST' | 'PATCH'; readonly url: string },
  parts: readonly ExamplePart[],
) {
  const body = parts.map(
    ([name, content, type = 'application/json']) =>
      `--cut\r\nContent-Disposition: form-data; name="${name}"\r\nContent-Type: ${type}\r\n\r\n` +
      `${typeof content === 'string' ? content : JSON.stringify(content)}\r\n`,
  );
  const answer = await server.inject({
    method,
    url,
    headers: { 'x-api-key': key, 'content-type': 'multipart/form-data; boundary=cut' },
    payload: `${body.join('')}--cut--\r\n`,
  });
  return { status: answer.statusCode, body: answer.json() };
}
