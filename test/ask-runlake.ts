interface Target {
  readonly url: string;
  readonly apiKey: string;
}

interface Request {
  /** Default: POST with a body, otherwise GET. */
  readonly method?: string;
  readonly body?: unknown;
  /** Default: the workspace of the key. */
  readonly workspaceId?: string | undefined;
}

/**
 * Sends a request, with JSON if it has a body, to a Runlake process or agent server, and returns the JSON of the response.
 *
 * @returns any value by default: a suite checks what it uses.
 * @throws if the status is not below 300.
 */
export async function askRunlake<Answer = ReturnType<typeof JSON.parse>>(
  { url, apiKey }: Target,
  path: string,
  { body, method = body === undefined ? 'GET' : 'POST', workspaceId }: Request = {},
): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method,
    headers: {
      'x-api-key': apiKey,
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(workspaceId !== undefined && { 'x-tenant-id': workspaceId }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
  return (text === '' ? undefined : JSON.parse(text)) as Answer;
}
