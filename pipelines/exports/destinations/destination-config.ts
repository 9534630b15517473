import type { Sealer } from '../../../infra/sealing/sealer.ts';

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

/** As sent in requests and as sealed. */
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

/** Seals the given credentials for the row `id`. Returns the sealed text and the names of the fields. */
export function sealCredentials(sealer: Sealer, id: string, given: DestinationCredentials) {
  const { access_key_id, secret_access_key, session_token } = given;
  const values = { access_key_id, secret_access_key, ...(session_token == null ? {} : { session_token }) };
  return { sealed: sealer.seal(JSON.stringify(values), id), keys: Object.keys(values) };
}
