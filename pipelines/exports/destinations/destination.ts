import type { Config } from '../../../infra/config/settings.ts';
import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import type { S3Limits } from '../../../infra/objects/s3/s3-connection.ts';
import type { Sql } from '../../../infra/postgres/database.ts';
import type { PageRequest } from '../../../infra/postgres/list-page.ts';
import type { Database } from '../../../infra/postgres/pool.ts';
import { createSealer, type Sealer } from '../../../infra/sealing/sealer.ts';
import { readTrustedAuthorities } from '../../../infra/tls/trusted-authorities.ts';

/**
 * Configuration of a destination in the form that is stored and returned; `null` means that the field is not set. Field
 * names: main API, bulk export.
 */
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

/** Credentials in the form in which they are sent in requests and, after encryption, stored. */
export interface DestinationCredentials {
  readonly access_key_id: string;
  readonly secret_access_key: string;
  readonly session_token?: string | null | undefined;
}

/** A destination in the form that the API returns. It contains only the names of the credentials, not their values. */
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

/** Columns that form a {@link DestinationRecord}. */
export const destinationColumns =
  'id, workspace_id AS tenant_id, destination_type, display_name, config, credentials_keys, created_at, updated_at';

/**
 * Encrypts (seals) the credentials for the row `id`. Returns the encrypted text and the names of the encrypted fields.
 */
export function sealCredentials(sealer: Sealer, id: string, given: DestinationCredentials) {
  const { access_key_id, secret_access_key, session_token } = given;
  const values = { access_key_id, secret_access_key, ...(session_token == null ? {} : { session_token }) };
  return { sealed: sealer.seal(JSON.stringify(values), id), keys: Object.keys(values) };
}

/** The column that {@link sealCredentials} fills, for {@link resealColumns}. */
export const sealedCredentialsColumn = {
  table: 'bulk_export_destinations',
  column: 'sealed_credentials',
  keyColumns: ['id'],
  identify: (id: string) => id,
};

/**
 * Maximum number of concurrent checks per workspace in this process. If an object store hangs, a check occupies a
 * connection and a client for seconds.
 */
const maxConcurrentChecks = 16;

/** Limits concurrent destination checks in this process, separately for each workspace. */
class CheckLimiter {
  readonly #inFlight = new Map<string, number>();

  /**
   * Runs `check` within the limit of the workspace.
   *
   * @throws OVERLOADED if the workspace has reached its limit; errors of `check`.
   */
  async runCheck<T>(workspaceId: string, check: () => Promise<T>): Promise<T> {
    const inFlight = this.#inFlight.get(workspaceId) ?? 0;
    if (inFlight >= maxConcurrentChecks) {
      throw runlakeError('OVERLOADED', { what: 'checks of destinations of this workspace' }, { retryAfterSeconds: 5 });
    }
    this.#inFlight.set(workspaceId, inFlight + 1);
    try {
      return await check();
    } finally {
      const left = (this.#inFlight.get(workspaceId) as number) - 1;
      if (left > 0) this.#inFlight.set(workspaceId, left);
      else this.#inFlight.delete(workspaceId);
    }
  }
}

/** Dependencies of all operations on destinations. {@link createDestinationDeps} creates them. */
export interface DestinationDeps {
  readonly database: Database;
  readonly sealer: Sealer;
  readonly config: Pick<
    Config,
    'localExportRoot' | 'allowPrivateEndpoints' | 'allowDefaultCredentials' | 'exportMaxDestinations'
  >;
  readonly checks: CheckLimiter;
  /** Trusted CA certificates in PEM. */
  readonly authorities: readonly string[] | undefined;
  /** Timeouts and numbers of attempts for object stores. If undefined, the defaults of `infra/objects` apply. */
  readonly limits?: S3Limits | undefined;
}

export function createDestinationSealer(
  { formerSecretKeys }: Pick<Config, 'formerSecretKeys'>,
  secretKey: string,
): Sealer {
  const what = 'The credentials of the destination';
  return createSealer({ secretKey, formerSecretKeys, purpose: 'destinations', what });
}

/**
 * Creates the dependencies of operations on destinations.
 *
 * @param secretKey The secret key of this process, which is either configured or generated in the data folder.
 * @throws TLS_FILE_UNUSABLE
 */
export function createDestinationDeps(config: Config, database: Database, secretKey: string): DestinationDeps {
  const sealer = createDestinationSealer(config, secretKey);
  return { database, sealer, config, checks: new CheckLimiter(), authorities: readTrustedAuthorities(config) };
}

/** Reads a destination. @throws NOT_FOUND if the workspace has no destination with this id. */
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
 * Lists the destinations of a workspace, oldest first. Ties are broken by id, so that consecutive pages neither repeat
 * nor skip a destination.
 */
export function listDestinations(
  database: Database,
  workspaceId: string,
  page: PageRequest,
): Promise<DestinationRecord[]> {
  return database.query<DestinationRecord>(
    `SELECT ${destinationColumns} FROM bulk_export_destinations WHERE workspace_id = $1 AND deleted_at IS NULL
     ORDER BY created_at, id LIMIT $2 OFFSET $3`,
    [workspaceId, page.limit, page.offset],
  );
}
