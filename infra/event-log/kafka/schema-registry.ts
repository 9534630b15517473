import { Agent } from 'node:https';
import { COMPATIBILITY, SchemaRegistry, SchemaType } from '@kafkajs/confluent-schema-registry';
import { isRunlakeError, runlakeError } from '../../errors/runlake-error.ts';
import { backoffMs, pause } from '../../timeouts/backoff.ts';
import { type RegistryAddress, registryError, requestRegistry } from './registry-request.ts';

/** The registry's error code for an unknown schema id. A plain 404 may also come from a proxy. */
const schemaNotFound = 40_403;
const timeoutMs = 5_000;
/** Bounds the cache: the ids come from records, so a client of Kafka can make up any number of them. */
const maxSchemas = 1_000;

/** Status codes that a retry does not change: incompatible, invalid, read-only. */
const refusals = new Set([403, 405, 409, 422]);
/**
 * Registering takes several requests. When processes start together on an empty registry, the registry refuses some of
 * them once.
 */
const registerAttempts = 4;

/** Registers and reads the schemas of the log. Caches those it has read: while the registry is down only unknown ids fail. */
export class Schemas {
  readonly #address: RegistryAddress;
  readonly #texts = new Map<number, string>();

  constructor(address: RegistryAddress) {
    this.#address = address;
  }

  /**
   * Registers `schema` under `subject` and sets the subject's compatibility to FULL.
   *
   * @returns the registry's id.
   * @throws REGISTRY_UNAVAILABLE, SCHEMA_REFUSED
   */
  async register(subject: string, schema: string): Promise<number> {
    await this.check();
    const { base: host, auth, ca } = this.#address;
    const registry = new SchemaRegistry({
      host,
      clientId: 'runlake',
      retry: { retries: 1, initialRetryTimeInSecs: 0.1, maxRetryTimeInSecs: 1 },
      ...(auth ? { auth } : {}),
      // `tlsCaFile` may be meant for other servers: an agent with TLS options would fail on a plain http address.
      ...(ca && host.startsWith('https:') ? { agent: new Agent({ ca: [...ca] }) } : {}),
    });
    for (let attempt = 1; ; attempt++) {
      try {
        const { id } = await registry.register(
          { type: SchemaType.AVRO, schema },
          { subject, compatibility: COMPATIBILITY.FULL },
        );
        this.#texts.set(id, schema);
        return id;
      } catch (error) {
        const refusal = await this.#refusal(subject, error);
        if (attempt === registerAttempts) throw refusal;
        await pause(backoffMs(attempt, 100, 1_000));
      }
    }
  }

  /**
   * Returns the text of a schema, or `undefined` if the registry reports that the id does not exist.
   * @throws REGISTRY_UNAVAILABLE for any other failure, so that an outage never counts as "does not exist".
   */
  async textOf(id: number): Promise<string | undefined> {
    const kept = this.#texts.get(id);
    if (kept !== undefined) return kept;
    const { status, body } = await requestRegistry(this.#address, `/schemas/ids/${id}`, timeoutMs);
    const { schema, error_code: code } = (body ?? {}) as { schema?: unknown; error_code?: unknown };
    if (status === 404 && code === schemaNotFound) return undefined;
    if (status !== 200 || typeof schema !== 'string') throw registryError(this.#address, `it answered ${status}`);
    if (this.#texts.size >= maxSchemas) this.#texts.clear();
    this.#texts.set(id, schema);
    return schema;
  }

  /** @throws REGISTRY_UNAVAILABLE */
  async check(): Promise<void> {
    const { status, body } = await requestRegistry(this.#address, '/subjects', timeoutMs);
    if (status === 200 && Array.isArray(body)) return;
    if (status === 401 || status === 403) {
      throw runlakeError('ACCESS_DENIED_BY_STORE', { store: 'The schema registry', reason: `it answered ${status}` });
    }
    throw registryError(this.#address, `it answered ${status} to a request for its subjects`);
  }

  /**
   * The package reports a lost connection as status 400, which the registry itself never sends here; so check the
   * registry first.
   */
  async #refusal(subject: string, error: unknown): Promise<Error> {
    try {
      await this.check();
    } catch (down) {
      if (isRunlakeError(down)) return down;
    }
    const { status, message } = error as { status?: number; message?: string };
    const reason = String(message).slice(0, 300);
    if (status === undefined || !refusals.has(status)) return registryError(this.#address, reason, error);
    return runlakeError('SCHEMA_REFUSED', { subject, reason }, { cause: error });
  }
}
