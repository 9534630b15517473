/** Sends a request to the API. @returns the response body as text. */
export async function askText(url: string, key: string, body?: object, headers: object = {}): Promise<string> {
  const response = await fetch(url, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status} from ${url}: ${text}`);
  return text;
}

/** Sends a request to the API. @returns the parsed response body. */
export async function ask<T>(url: string, key: string, body?: object, headers: object = {}): Promise<T> {
  return JSON.parse(await askText(url, key, body, headers)) as T;
}
