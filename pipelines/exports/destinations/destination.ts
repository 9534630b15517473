import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-connection.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createSealer, type Sealer } from '../../../infra/sealing/sealer.ts';
import { trustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';

/** Configuration of a destination as stored and as returned; `null` means not given. Field names: main API, bulk export. */
export interface DestinationConfig {
  readonly bucket_name: string | null;
  readonly prefix: string;
  readonly region: string | null;
  readonly endpoint_url: string | null;
  readonly include_bucket_in_prefix: boolean;
  readonly config_kwargs_s3: { readonly addressing_style: AddressingStyle } | null;
}

export type DestinationType = 's3' | 'local';
export type AddressingStyle = 'virtual' | 'path' | 'auto';

/** Credentials as sent in requests and, encrypted, as stored. */
export interface DestinationCredentials {
  readonly access_key_id: string;
  readonly secret_access_key: string;
  readonly session_token?: string | null | undefined;
}

/** A destination as the API returns it: only the names of its credentials, not their values. */
export interface DestinationRecord {
  readonly id: string;
  readonly tenant_id: string;
  readonly destination_type: DestinationType;
  readonly display_name: string;
  readonly config: DestinationConfig;
  readonly credentials_keys: readonly string[];
  readonly created_at: string;
  readonly updated_at: string;
}

/** Columns of a {@link DestinationRecord}. */
export const destinationColumns =
  'id, workspace_id AS tenant_id, destination_type, display_name, config, credentials_keys, created_at, updated_at';

/** Encrypts (seals) the given credentials for the row `id`. Returns the encrypted text and the names of the fields. */
export function sealCredentials(sealer: Sealer, id: string, given: DestinationCredentials) {
  const { access_key_id, secret_access_key, session_token } = given;
  const values = { access_key_id, secret_access_key, ...(session_token == null ? {} : { session_token }) };
  return { sealed: sealer.seal(JSON.stringify(values), id), keys: Object.keys(values) };
}

/**
 * Maximum number of concurrent checks per workspace in this process. If an object store hangs, its check occupies a
 * connection and a client for seconds.
 */
const maxConcurrentChecks = 16;

/** Limits concurrent destination checks in this process, separately for each workspace. */
class CheckLimiter {
  readonly #inFlight = new Map<string, number>();

  /** @throws OVERLOADED if the workspace is at its limit; errors of `check`. */
  async during(workspaceId: string, check: () => Promise<void>): Promise<void> {
    const inFlight = this.#inFlight.get(workspaceId) ?? 0;
    if (inFlight >= maxConcurrentChecks) {
      throw runlakeError('OVERLOADED', { what: 'checks of destinations of this workspace' }, { retryAfterSeconds: 5 });
    }
    this.#inFlight.set(workspaceId, inFlight + 1);
    try {
      await check();
    } finally {
      const left = (this.#inFlight.get(workspaceId) as number) - 1;
      if (left > 0) this.#inFlight.set(workspaceId, left);
      else this.#inFlight.delete(workspaceId);
    }
  }
}

/** Dependencies of all destination operations. Created by {@link destinationDeps}. */
export interface DestinationDeps {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly config: Pick<
    Config,
    'localExportRoot' | 'allowPrivateEndpoints' | 'allowDefaultCredentials' | 'exportMaxDestinations'
  >;
  readonly checks: CheckLimiter;
  /** CA certificates to trust, in PEM. */
  readonly authorities: readonly string[] | undefined;
  /** Timeouts and attempts for object stores. If undefined, the defaults of `infra/objects` apply. */
  readonly limits?: S3Limits | undefined;
}

/**
 * @param secretKey The secret key of this process: configured, or generated in the data folder.
 * @throws TLS_FILE_UNUSABLE
 */
export function destinationDeps(config: Config, database: Database, secretKey: string): DestinationDeps {
  const sealer = createSealer({
    secretKey,
    formerSecretKeys: config.formerSecretKeys,
    purpose: 'destinations',
    what: 'The credentials of the destination',
  });
  return { database, sealer, config, checks: new CheckLimiter(), authorities: trustedAuthorities(config) };
}

/** @throws NOT_FOUND if the workspace has no destination with this id. */
export async function readDestination(sql: Sql, workspaceId: string, id: string): Promise<DestinationRecord> {
  const [found] = await sql.query<DestinationRecord>(
    `SELECT ${destinationColumns} FROM bulk_export_destinations WHERE id = $1 AND workspace_id = $2 AND deleted_at IS NULL`,
    [id, workspaceId],
  );
  if (found === undefined) throw createDestinationNotFoundError();
  return found;
}

export const createDestinationNotFoundError = () => runlakeError('NOT_FOUND', { what: 'Bulk export destination' });

/**
 * The destinations of a workspace, oldest first. The id breaks ties, so that consecutive pages neither repeat nor skip
 * a destination.
 */
export function listDestinations(
  database: Database,
  workspaceId: string,
  page: { readonly limit: number; readonly offset: number },
): Promise<DestinationRecord[]> {
  return database.query<DestinationRecord>(
    `SELECT ${destinationColumns} FROM bulk_export_destinations WHERE workspace_id = $1 AND deleted_at IS NULL
     ORDER BY created_at, id LIMIT $2 OFFSET $3`,
    [workspaceId, page.limit, page.offset],
  );
}
