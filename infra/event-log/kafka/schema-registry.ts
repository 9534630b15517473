import { Agent } from 'node:https';
import { COMPATIBILITY, SchemaRegistry, SchemaType } from '@kafkajs/confluent-schema-registry';
import { fault, isRunlakeError } from '../../errors/runlake-error.ts';
import { backoffMs, pause } from './pause.ts';
import { askRegistry, type RegistryAddress, registryFault } from './registry-request.ts';

/** Error code of the registry's API: a schema of that id does not exist. A bare 404 may come from anything on the way. */
const schemaNotFound = 40_403;
const timeoutMs = 5_000;
/** Ids are asked for by what stands in records, so strangers decide how many there are. */
const mostSchemas = 1_000;

/** Incompatible, invalid, read-only: answers of the registry that a retry does not change. */
const refusals = new Set([403, 405, 409, 422]);
/** Registering takes several requests; of processes that start together on an empty registry some are refused, once. */
const registerAttempts = 4;

/** The schemas of the log. Those once read are kept: a registry that is down stops only schemas not seen before. */
export class Schemas {
  readonly #address: RegistryAddress;
  readonly #texts = new Map<number, string>();

  constructor(address: RegistryAddress) {
    this.#address = address;
  }

  /**
   * Registers `schema` under `subject`, whose compatibility is FULL from then on.
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
      // The authorities may be meant for other servers: a plain address takes no agent of TLS.
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
   * The text of a schema; `undefined` where the registry says that there is none of that id.
   * @throws REGISTRY_UNAVAILABLE where it says nothing, or something else: that must never be taken for "there is none".
   */
  async textOf(id: number): Promise<string | undefined> {
    const kept = this.#texts.get(id);
    if (kept !== undefined) return kept;
    const { status, body } = await askRegistry(this.#address, `/schemas/ids/${id}`, timeoutMs);
    const { schema, error_code: code } = (body ?? {}) as { schema?: unknown; error_code?: unknown };
    if (status === 404 && code === schemaNotFound) return undefined;
    if (status !== 200 || typeof schema !== 'string') throw registryFault(this.#address, `it answered ${status}`);
    if (this.#texts.size >= mostSchemas) this.#texts.clear();
    this.#texts.set(id, schema);
    return schema;
  }

  /** @throws REGISTRY_UNAVAILABLE */
  async check(): Promise<void> {
    const { status, body } = await askRegistry(this.#address, '/subjects', timeoutMs);
    if (status === 200 && Array.isArray(body)) return;
    if (status === 401 || status === 403) {
      throw fault('ACCESS_DENIED_BY_STORE', { store: 'The schema registry', reason: `it answered ${status}` });
    }
    throw registryFault(this.#address, `it answered ${status} to a request for its subjects`);
  }

  /** The package reports a lost connection like an answer with status 400, which the registry itself never sends here. */
  async #refusal(subject: string, error: unknown): Promise<Error> {
    try {
      await this.check();
    } catch (down) {
      if (isRunlakeError(down)) return down;
    }
    const { status, message } = error as { status?: number; message?: string };
    const reason = String(message).slice(0, 300);
    if (status === undefined || !refusals.has(status)) return registryFault(this.#address, reason, error);
    return fault('SCHEMA_REFUSED', { subject, reason }, { cause: error });
  }
}
