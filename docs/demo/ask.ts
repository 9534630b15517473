/** Asks the API; the body of the answer as text. */
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

/** Asks the API; the answer's JSON. */
export async function ask<T>(url: string, key: string, body?: object, headers: object = {}): Promise<T> {
  return JSON.parse(await askText(url, key, body, headers)) as T;
}
