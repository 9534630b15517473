/** The client of the schema registry. */
import { Agent } from 'node:https';
import { COMPATIBILITY, SchemaRegistry as RegistryClient, SchemaType } from '@kafkajs/confluent-schema-registry';
import { LRUCache } from 'lru-cache';
import type { Config } from '../../config/settings.ts';
import { isRunlakeError, type RunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { sendRequest } from '../../network/guarded-fetch.ts';
import { computeBackoffMs, pause } from '../../timeouts/backoff.ts';
import { readTrustedAuthorities } from '../../tls/trusted-authorities.ts';

/** URL of the registry, with its credentials, and the file of trusted CA certificates. */
export type RegistryAddress = Pick<Config, 'schemaRegistryUrl' | 'tlsCaFile'>;

const timeoutMs = 5_000;
const maxResponseBytes = 16 * 1024 * 1024;
const contentType = 'application/vnd.schemaregistry.v1+json';
/** The registry's error code for an unknown schema id. A plain 404 may also come from a proxy. */
const schemaNotFoundCode = 40_403;
/** Limits the size of the cache: the ids come from records, so a Kafka client can use any number of ids. */
const maxSchemas = 1_000;
/** Status codes of permanent errors, which a retry cannot resolve: incompatible, invalid, read-only. */
const refusalStatuses = new Set([403, 405, 409, 422]);
/**
 * Registering a schema takes several requests. If processes start at the same time on an empty registry, the registry
 * refuses some of these requests once.
 */
const maxRegisterAttempts = 4;

interface RegistryResponse {
  readonly status: number;
  /** The parsed body; undefined if it is not JSON. */
  readonly body: unknown;
}

/**
 * Registers and reads the schemas of the log. Caches the schemas that it has read, so that while the registry is down,
 * only lookups of unknown ids fail.
 */
export class SchemaRegistry {
  /** URL without user and password. */
  readonly #base: string;
  readonly #auth: { readonly username: string; readonly password: string } | undefined;
  /** Trusts the certificates of `tlsCaFile`, which may be meant for other servers: an https agent fails on plain http. */
  readonly #agent: Agent | undefined;
  readonly #texts = new LRUCache<number, string>({ max: maxSchemas });

  /** Connects at the first request. @throws TLS_FILE_UNUSABLE */
  constructor(address: RegistryAddress) {
    const url = new URL(address.schemaRegistryUrl ?? '');
    const { username, password } = url;
    url.username = '';
    url.password = '';
    this.#base = url.href.replace(/\/+$/, '');
    if (username !== '') {
      this.#auth = { username: decodeURIComponent(username), password: decodeURIComponent(password) };
    }
    const authorities = readTrustedAuthorities(address);
    if (authorities && url.protocol === 'https:') this.#agent = new Agent({ ca: [...authorities] });
  }

  /**
   * Registers `schema` under `subject` and sets the subject's compatibility to FULL.
   *
   * @returns the registry's id.
   * @throws REGISTRY_UNAVAILABLE, SCHEMA_REFUSED
   */
  async register(subject: string, schema: string): Promise<number> {
    await this.check();
    const client = new RegistryClient({
      host: this.#base,
      clientId: 'runlake',
      retry: { retries: 1, initialRetryTimeInSecs: 0.1, maxRetryTimeInSecs: 1 },
      ...(this.#auth ? { auth: this.#auth } : {}),
      ...(this.#agent ? { agent: this.#agent } : {}),
    });
    for (let attempt = 1; ; attempt++) {
      try {
        const { id } = await client.register(
          { type: SchemaType.AVRO, schema },
          { subject, compatibility: COMPATIBILITY.FULL },
        );
        this.#texts.set(id, schema);
        return id;
      } catch (error) {
        const refusal = await this.#refusal(subject, error);
        if (attempt === maxRegisterAttempts) throw refusal;
        await pause(computeBackoffMs(attempt, 100, 1_000));
      }
    }
  }

  /**
   * Returns the text of a schema, or `undefined` if the registry reports that the id does not exist.
   * @throws REGISTRY_UNAVAILABLE for any other failure, so that an outage never counts as "does not exist".
   */
  async getSchemaText(id: number): Promise<string | undefined> {
    const kept = this.#texts.get(id);
    if (kept !== undefined) return kept;
    const { status, body } = await this.#request(`/schemas/ids/${id}`);
    const { schema, error_code: code } = (body ?? {}) as { schema?: unknown; error_code?: unknown };
    if (status === 404 && code === schemaNotFoundCode) return undefined;
    if (status !== 200 || typeof schema !== 'string') throw this.#unavailable(`it answered ${status}`);
    this.#texts.set(id, schema);
    return schema;
  }

  /** @throws REGISTRY_UNAVAILABLE, ACCESS_DENIED_BY_STORE */
  async check(): Promise<void> {
    await this.subjects();
  }

  /** @throws REGISTRY_UNAVAILABLE, ACCESS_DENIED_BY_STORE */
  async subjects(): Promise<unknown[]> {
    const { status, body } = await this.#request('/subjects');
    if (status === 200 && Array.isArray(body)) return body;
    if (status === 401 || status === 403) {
      throw runlakeError('ACCESS_DENIED_BY_STORE', { store: 'The schema registry', reason: `it answered ${status}` });
    }
    throw this.#unavailable(`it answered ${status} to a request for its subjects`);
  }

  /** Returns true if `schema` is compatible with the newest schema of `subject`. @throws REGISTRY_UNAVAILABLE */
  async isCompatible(subject: string, schema: string): Promise<boolean> {
    const path = `/compatibility/subjects/${encodeURIComponent(subject)}/versions/latest`;
    const { status, body } = await this.#request(path, { schema });
    if (status !== 200) throw this.#unavailable(`it answered ${status} to a compatibility check of ${subject}`);
    return (body as { is_compatible?: unknown } | undefined)?.is_compatible === true;
  }

  /**
   * Converts an error of registering a schema. Checks the registry first, because the package reports a lost connection
   * as status 400, which the registry itself never sends here.
   */
  async #refusal(subject: string, error: unknown): Promise<Error> {
    try {
      await this.check();
    } catch (checkError) {
      if (isRunlakeError(checkError)) return checkError;
    }
    const { status, message } = error as { status?: number; message?: string };
    const reason = String(message).slice(0, 300);
    if (status === undefined || !refusalStatuses.has(status)) return this.#unavailable(reason, error);
    return runlakeError('SCHEMA_REFUSED', { subject, reason }, { cause: error });
  }

  /**
   * Sends `GET` to a path of the registry's API, or `POST` if there is `content`.
   * @throws REGISTRY_UNAVAILABLE if the complete response does not arrive in time.
   */
  async #request(path: string, content?: object): Promise<RegistryResponse> {
    const timeout = AbortSignal.timeout(timeoutMs);
    const { username, password } = this.#auth ?? {};
    const headers = {
      accept: `${contentType}, application/json`,
      ...(content && { 'content-type': contentType }),
      ...(this.#auth && { authorization: `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}` }),
    };
    const init = content === undefined ? { headers } : { headers, method: 'POST', body: JSON.stringify(content) };
    try {
      const response = await sendRequest(new URL(this.#base + path), init, {
        agent: this.#agent,
        signal: timeout,
        maxResponseBytes,
        refuseSize: () => this.#unavailable('its response is too long'),
      });
      return { status: response.status, body: parseJson(await response.text()) };
    } catch (error) {
      if (isRunlakeError(error)) throw error;
      const reason = timeout.aborted ? `no answer within ${timeoutMs} ms` : (error as Error).message;
      throw this.#unavailable(reason, error);
    }
  }

  #unavailable(reason: string, cause?: unknown): RunlakeError {
    return runlakeError(
      'REGISTRY_UNAVAILABLE',
      { address: this.#base, reason: reason.slice(0, 200) },
      { cause, retryAfterSeconds: 2 },
    );
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
