import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { runlakeError } from '../../errors/runlake-error.ts';

export interface RegistryAddress {
  /** URL without user and password. */
  readonly base: string;
  readonly auth: { readonly username: string; readonly password: string } | undefined;
  readonly ca: readonly string[] | undefined;
}

export interface RegistryAnswer {
  readonly status: number;
  /** The parsed body; undefined if it is not JSON. */
  readonly body: unknown;
}

const maxAnswerBytes = 16 * 1024 * 1024;

export function registryAddress(url: string, ca: readonly string[] | undefined): RegistryAddress {
  const parsed = new URL(url);
  const { username, password } = parsed;
  parsed.username = '';
  parsed.password = '';
  const auth =
    username === '' ? undefined : { username: decodeURIComponent(username), password: decodeURIComponent(password) };
  return { base: parsed.href.replace(/\/+$/, ''), auth, ca };
}

/**
 * Sends `GET` to a path of the registry's API, or `POST` if there is `content`.
 * @throws REGISTRY_UNAVAILABLE if the complete answer does not arrive within `timeoutMs`.
 */
export function requestRegistry(
  address: RegistryAddress,
  path: string,
  timeoutMs: number,
  content?: object,
): Promise<RegistryAnswer> {
  const url = new URL(address.base + path);
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const failed = (cause: unknown, reason?: string) => {
      clearTimeout(timer);
      reject(registryError(address, reason ?? (cause as Error).message, cause));
    };
    const request = send(
      url,
      {
        method: content === undefined ? 'GET' : 'POST',
        headers: {
          accept: 'application/vnd.schemaregistry.v1+json, application/json',
          ...(content && { 'content-type': 'application/vnd.schemaregistry.v1+json' }),
        },
        ...(address.auth ? { auth: `${address.auth.username}:${address.auth.password}` } : {}),
        ...(address.ca ? { ca: [...address.ca] } : {}),
      },
      (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('error', failed);
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes > maxAnswerBytes) request.destroy(registryError(address, 'its answer is too long'));
          else chunks.push(chunk);
        });
        response.on('end', () => {
          clearTimeout(timer);
          resolve({ status: response.statusCode ?? 0, body: parse(Buffer.concat(chunks).toString()) });
        });
      },
    );
    const timer = setTimeout(
      () => request.destroy(registryError(address, `no answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    request.on('error', failed);
    request.end(content && JSON.stringify(content));
  });
}

export function registryError({ base }: RegistryAddress, reason: string, cause?: unknown) {
  return runlakeError(
    'REGISTRY_UNAVAILABLE',
    { address: base, reason: reason.slice(0, 200) },
    { cause, retryAfterSeconds: 2 },
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
